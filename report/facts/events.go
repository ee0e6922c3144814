package facts

import (
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/kube"
)

// Event is a warning of Holdfast, with how often it came. Its fields have the names that they have in an Event of Kubernetes.
type Event struct {
	LastTimestamp  time.Time       `json:"lastTimestamp"`
	InvolvedObject ObjectReference `json:"involvedObject"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message"`
	Count          int             `json:"count"` // how often it came
}

// ObjectReference names an object of any kind.
type ObjectReference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is KIND NAME or KIND NAMESPACE/NAME.
func (r ObjectReference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Events are the warnings that Holdfast or its sidecars wrote, or that are about what belongs to it: the newest first, at
// most so many.
func (f *Facts) Events(most int) []Event {
	found := []Event{}
	for _, e := range f.Warnings {
		if !kube.WarnsOfHoldfast(e, f.Namespace) {
			continue
		}
		object := ObjectReference{e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name}
		found = append(found, Event{kube.LastOccurrence(e).UTC(), object, e.Reason, e.Message, max(int(e.Count), 1)})
	}
	slices.SortStableFunc(found, func(a, b Event) int { return b.LastTimestamp.Compare(a.LastTimestamp) })
	found = together(found)
	return found[:min(len(found), most)]
}

// together makes one of those that warn of the same thing again and again: the newest, with the number of all.
func together(all []Event) []Event {
	type same struct {
		object ObjectReference
		reason string
	}
	at := map[same]int{}
	kept := []Event{}
	for _, e := range all {
		i, known := at[same{e.InvolvedObject, e.Reason}]
		if known {
			kept[i].Count += e.Count
			continue
		}
		at[same{e.InvolvedObject, e.Reason}] = len(kept)
		kept = append(kept, e)
	}
	return kept
}
