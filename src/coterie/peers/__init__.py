"""Peers: a network becomes m peers that share their lower modules."""
