package local

// MetadataVersion is the version of layout and metadata that this program writes, and the newest that it reads. An
// older program must not open newer pools.
const MetadataVersion = version
