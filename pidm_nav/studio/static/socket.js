// A conversation that is taken up again by itself when the connection is lost, until one side ends it.
import { complain, refresh, refreshIfLost } from "./page.js";

export function socket(path, { first, receive, picture, lost, closed }) {
  let line, ended = false, watchdog;
  const open = () => {
    const own = line = new WebSocket(`${location.origin.replace("http", "ws")}${path}`);
    const end = (over) => {
      if (own !== line) return;
      clearTimeout(watchdog);
      line = null;
      own.close();
      if (over || ended) return closed();
      lost();
      refresh(); // tells what is wrong
      setTimeout(() => ended || open(), 1000);
    };
    own.onopen = () => {
      own.send(JSON.stringify(first()));
      refreshIfLost();
    };
    own.onmessage = ({ data }) => {
      if (own !== line) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(end, 10000); // the studio is never silent: the network may be gone without a word
      if (typeof data !== "string") return picture(data);
      const told = JSON.parse(data);
      if (!told.error) return receive(told);
      ended = true;
      complain(told.error);
    };
    own.onclose = ({ code }) => end(code === 1000);
  };
  open();
  return {
    say: (content) => line?.readyState === 1 && line.send(JSON.stringify(content)),
    close: () => { const own = line; ended = true; line = null; clearTimeout(watchdog); own?.close(); },
  };
}
