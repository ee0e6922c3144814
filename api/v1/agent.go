package v1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// LeasePrefix and a node's name make the name of the Lease by which the node's agent shows that it lives.
const LeasePrefix = "holdfast-node-"

// DiscardAnnotation is on a StorageNode and lists what its agent must remove from its disk if it is there: things
// that were given up while the agent could not be reached. The controller adds to it, the agent takes away.
const DiscardAnnotation = "holdfast.dev/discard"

// A Discard is one entry of the DiscardAnnotation.
//
// +kubebuilder:object:generate=false
type Discard struct {
	Kind SourceKind
	Name string
	UID  types.UID // of the object that was given up; another object of that name is none of it
}

// ParseDiscards reads the annotation; what cannot be read is left out.
func ParseDiscards(annotation string) (all []Discard) {
	for entry := range strings.FieldsSeq(annotation) {
		parts := strings.Split(entry, "/")
		if len(parts) == 3 {
			all = append(all, Discard{SourceKind(parts[0]), parts[1], types.UID(parts[2])})
		}
	}
	return all
}

// FormatDiscards writes the annotation; it is empty when there is nothing to discard.
func FormatDiscards(all []Discard) string {
	var entries []string
	for _, d := range all {
		entries = append(entries, string(d.Kind)+"/"+d.Name+"/"+string(d.UID))
	}
	return strings.Join(entries, " ")
}
