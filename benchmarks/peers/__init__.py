"""One module a library: how it enqueues a no-op job and how its worker is started."""
