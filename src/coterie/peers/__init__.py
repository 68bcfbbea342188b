"""Turn a network into m peers that share their lower modules."""
