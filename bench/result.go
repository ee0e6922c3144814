package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
)

// Measure names two events, such as ClaimBound, and stands for the time between them.
type Measure string

// The measures.
const (
	PlainPod     Measure = "plainPodRunning"
	ClaimBound   Measure = "claimBound"
	NewBound     Measure = "newClaimBound"
	NewRunning   Measure = "newClaimPodRunning"
	BoundRunning Measure = "newClaimBoundToRunning"
	BoundPod     Measure = "boundClaimPodRunning"
	VolumeGone   Measure = "volumeGone"
)

// measures lists them in the order of a life.
var measures = []Measure{PlainPod, ClaimBound, NewBound, BoundRunning, NewRunning, BoundPod, VolumeGone}

// Result is the result of a run. All times are in seconds.
type Result struct {
	Program      string        `json:"program"`
	Started      time.Time     `json:"started"`
	Took         Seconds       `json:"tookSeconds"`
	Complete     bool          `json:"complete"` // everything requested was measured
	Class        Class         `json:"storageClass"`
	Cluster      Cluster       `json:"cluster"`
	Volume       Volume        `json:"volume"`
	Measurements []Measurement `json:"measurements"`
	Notes        []string      `json:"notes"`    // on how to interpret the measurements
	Warnings     []Warning     `json:"warnings"` // events of the cluster
	Failures     []Failure     `json:"failures"`
}

// Class is the measured StorageClass.
type Class struct {
	Name          string                             `json:"name"`
	Provisioner   string                             `json:"provisioner"`
	BindingMode   storage.VolumeBindingMode          `json:"volumeBindingMode"`
	ReclaimPolicy core.PersistentVolumeReclaimPolicy `json:"reclaimPolicy"`
}

// Cluster is the cluster of the run.
type Cluster struct {
	Version string   `json:"version"`
	Nodes   []string `json:"nodes"` // that pods may run on
}

// Volume is the requested volume, and the image of the pods.
type Volume struct {
	Size  string `json:"size"`
	Bytes int64  `json:"sizeBytes"`
	Image string `json:"image"`
}

// Measurement has the statistics of a measure in rounds of the same size.
type Measurement struct {
	Measure Measure  `json:"measure"`
	AtOnce  int      `json:"atOnce"`
	Samples int      `json:"samples"`
	P50     Seconds  `json:"p50Seconds"`
	P99     *Seconds `json:"p99Seconds"` // for 100 samples or more
	Min     Seconds  `json:"minSeconds"`
	Max     Seconds  `json:"maxSeconds"`
	// Ratio is the ratio of the P50 to that of pods without claims in rounds of the same size.
	Ratio *float64 `json:"p50RatioToPlainPod"`
	// Spread is the time between the first and the last start in a round.
	Spread Seconds   `json:"spreadSeconds"`
	Values []Seconds `json:"valuesSeconds"` // in ascending order
}

func (b *Bench) result(complete bool) *Result {
	r := &Result{
		Program: "holdfast bench " + b.Version, Started: b.begun.UTC(), Took: seconds(time.Since(b.begun)), Complete: complete,
		Class: b.class, Cluster: Cluster{Version: b.kube, Nodes: b.nodes},
		Volume:       Volume{Size: b.Size.String(), Bytes: b.Size.Value(), Image: b.Image},
		Measurements: b.times.measurements(b.AtOnce), Notes: append([]string{}, b.notes...), Failures: append([]Failure{}, b.failures...),
	}
	if b.class.ReclaimPolicy == core.PersistentVolumeReclaimRetain {
		r.Notes = append(r.Notes, "the class retains its volumes; those of this run were set to Delete before their claims were deleted")
	}
	b.seen.read(func() {
		r.Warnings = b.seen.warnings.all()
		if b.seen.interrupted != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("the API server could not be watched for a while, so some times are too long: %v", b.seen.interrupted))
		}
	})
	return r
}

func (t times) measurements(atOnce []int) []Measurement {
	result := []Measurement{}
	for _, n := range atOnce {
		var plain *Seconds
		for _, measure := range measures {
			s := t[seriesKey{measure, n}]
			if s == nil {
				continue
			}
			m := s.measurement()
			m.Measure, m.AtOnce = measure, n
			if measure == PlainPod {
				plain = &m.P50
			}
			if plain != nil && *plain > 0 {
				m.Ratio = new(math.Round(float64(m.P50 / *plain)*1000) / 1000)
			}
			result = append(result, m)
		}
	}
	return result
}

func (s *series) measurement() Measurement {
	sorted := slices.Sorted(slices.Values(s.durations))
	m := Measurement{
		Samples: len(sorted), P50: seconds(Percentile(sorted, 50)),
		Min: seconds(sorted[0]), Max: seconds(sorted[len(sorted)-1]), Spread: seconds(s.spread),
	}
	if len(sorted) >= leastForP99 {
		m.P99 = new(seconds(Percentile(sorted, 99)))
	}
	for _, d := range sorted {
		m.Values = append(m.Values, seconds(d))
	}
	return m
}
