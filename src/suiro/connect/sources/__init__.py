"""The sources that come along, one file each."""
