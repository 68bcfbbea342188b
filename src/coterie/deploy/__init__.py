"""What an exported file is made of: its metadata, its three formats, the pictures it is fed."""
