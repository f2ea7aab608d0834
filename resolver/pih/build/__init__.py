"""From a lock to a bundle: the store, the fetchers, the build graph and the embedded builder. Decides nothing."""
