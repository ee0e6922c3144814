package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/holdfast-storage/holdfast/bench"
)

// compare takes the runs of a class together. Those of two classes are comparable if they were made in turns, in one
// cluster, with the same flags.
func compare(files []string, out io.Writer) error {
	var classes []string
	var results []*bench.Result
	for _, name := range files {
		r, err := read(name)
		if err != nil {
			return err
		}
		results = append(results, r)
		if !slices.Contains(classes, r.Class.Name) {
			classes = append(classes, r.Class.Name)
		}
	}
	if len(classes) != 2 {
		return fmt.Errorf("%d files of %d classes: give results of two classes, such as A-1.json A-2.json B-1.json B-2.json", len(files), len(classes))
	}
	const head = "AT ONCE | MEASURE | SAMPLES | %[1]s P50 | %[2]s P50 | RATIO | %[1]s P99 | %[2]s P99 | RATIO"
	t := table{head: fmt.Sprintf(head, classes[0], classes[1])}
	for _, m := range results[0].Measurements {
		a, b := samples(results, classes[0], m), samples(results, classes[1], m)
		if len(b) == 0 {
			continue // a class binds at once or waits: it has one or the other
		}
		cells := []string{strconv.Itoa(m.AtOnce), string(m.Measure), fmt.Sprintf("%d, %d", len(a), len(b))}
		for _, p := range []int{50, 99} {
			cells = append(cells, took(a, p), took(b, p), bold(float64(bench.Percentile(a, p)/bench.Percentile(b, p))))
		}
		t.add(cells...)
	}
	_, err := io.WriteString(out, t.String())
	return err
}

// samples are those of a class that all its runs measured as m.
func samples(results []*bench.Result, class string, m bench.Measurement) (all []bench.Seconds) {
	for _, r := range results {
		for _, one := range r.Measurements {
			if r.Class.Name == class && one.Measure == m.Measure && one.AtOnce == m.AtOnce {
				all = append(all, one.Values...)
			}
		}
	}
	return all
}

func read(name string) (*bench.Result, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &bench.Result{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s: it must be what holdfast bench --output json writes: %w", name, err)
	}
	if !r.Complete || r.Class.Name == "" {
		return nil, fmt.Errorf("%s: a run that ended early has no figures to compare; run it again", name)
	}
	return r, nil
}
