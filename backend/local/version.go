package local

// MetadataVersion is that of the layout and the metadata that this program writes, and the newest that it reads. A
// program that reads less than what is on disk must not get at the pools.
const MetadataVersion = version
