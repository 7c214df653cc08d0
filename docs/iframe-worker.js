// Lets the search run where the site is read from a folder: browsers start no workers there, but load frames.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== this.inner) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        this.onmessage?.(event);
      });
      const load = "url => new Promise((done) => document.body.append(Object.assign(document.createElement('script'), { src: url, onload: done })))";
      this.loaded = new Promise((done) => { frame.onload = done; });
      this.inner.document.write(`<body><script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => (${load})(url)), Promise.resolve());
      <\/script><script src="${url}"><\/script></body>`);
      this.inner.document.close();
    }

    postMessage(data) { this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data }))); }

    terminate() { this.inner.frameElement.remove(); }
  };
}
