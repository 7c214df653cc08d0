# What continuous integration runs, one target a part. `make` alone runs them all in the active environment.
PYTHON ?= python

.PHONY: all test thorough slow lint types format pictures docs ci

all: lint types test

test:  ## the default suite, in parallel
	$(PYTHON) -m pytest -n auto

thorough:  ## what takes seconds and repeats in one piece what quicker tests cover in parts
	$(PYTHON) -m pytest -n auto -m thorough

slow:  ## what takes longer than about 20 seconds
	$(PYTHON) -m pytest -m slow

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

pictures:  ## the README's and the docs' pictures
	$(PYTHON) scripts/make_pictures.py

docs:  ## the site, into build/site
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

ci:  ## exactly what continuous integration runs, in a fresh virtual environment
	.ci/run
