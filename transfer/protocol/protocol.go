// Package protocol is what a pod that copies a volume says, and what the controller reads.
package protocol

// FinalExit is the exit code of a copy after which no other would succeed. It is none of those that Go or a shell give to a
// program that crashed, which are 2 and from 126 on.
const FinalExit = 65

// HasContentExit is the exit code of a copy whose target has content that no copy has left behind.
const HasContentExit = 66

// Phase is what a copy does.
type Phase string

// The phases, in this order. If the copy differs, they come once more.
const (
	Copying   Phase = "Copying"
	Verifying Phase = "Verifying"
)

// Progress is a line of JSON on standard output.
type Progress struct {
	Phase Phase `json:"phase"`
	Done  int64 `json:"done"`  // bytes of this phase
	Total int64 `json:"total"` // an estimate, never less than Done
}

// Result is the content of the result file after success, which is the termination message of a pod. After a failure that is
// the reason.
type Result struct {
	Bytes  int64  `json:"bytes"`  // of data, without the holes of files
	Files  int64  `json:"files"`  // names of everything but directories; 0 for a block device
	SHA256 string `json:"sha256"` // nodeops.CompareTrees and nodeops.CompareDevices say of what
}
