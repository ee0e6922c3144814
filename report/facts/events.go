package facts

import (
	"slices"
	"time"

	"github.com/holdfast-storage/holdfast/kube"
)

// Event is a warning of Holdfast, with how often it came.
type Event struct {
	Time    time.Time `json:"time" doc:"When it came last."`
	Object  string    `json:"object" doc:"KIND NAME or KIND NAMESPACE/NAME of what it is about."`
	Reason  string    `json:"reason" doc:"What happened, in one word."`
	Message string    `json:"message" doc:"What happened, for people."`
	Count   int       `json:"count" doc:"How often it came."`
}

// Events are the warnings that Holdfast or its sidecars wrote, or that are about what belongs to it: the newest first, at
// most so many; all if that is 0.
func (f *Facts) Events(most int) []Event {
	found := []Event{}
	for _, e := range f.Warnings {
		if !kube.WarnsOfHoldfast(e, f.Namespace) {
			continue
		}
		object := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		if e.InvolvedObject.Namespace != "" {
			object = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		}
		found = append(found, Event{When(e).UTC(), object, e.Reason, e.Message, max(int(e.Count), 1)})
	}
	slices.SortStableFunc(found, func(a, b Event) int { return b.Time.Compare(a.Time) })
	found = together(found)
	if most == 0 {
		return found
	}
	return found[:min(len(found), most)]
}

// together makes one of those that warn of the same thing again and again: the newest, with the number of all.
func together(all []Event) []Event {
	type same struct{ object, reason string }
	at := map[same]int{}
	kept := []Event{}
	for _, e := range all {
		i, known := at[same{e.Object, e.Reason}]
		if known {
			kept[i].Count += e.Count
			continue
		}
		at[same{e.Object, e.Reason}] = len(kept)
		kept = append(kept, e)
	}
	return kept
}
