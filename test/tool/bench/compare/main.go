// Command compare holds two storage classes against each other by the JSON that holdfast bench wrote of them.
//
//	compare A-*.json B-*.json
//
// The runs of a class are taken together. Those of two classes are comparable if they were made in turns, in one
// cluster, with the same flags.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/holdfast-storage/holdfast/bench"
)

func main() {
	if err := compare(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type figure struct {
	measure bench.Measure
	atOnce  int
}

// samples of one class.
type samples struct {
	class  string
	values map[figure][]bench.Seconds
}

func compare(files []string, out io.Writer) error {
	var classes []*samples
	var order []figure
	for _, name := range files {
		r, err := read(name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(classes, func(s *samples) bool { return s.class == r.Class.Name })
		if i < 0 {
			i = len(classes)
			classes = append(classes, &samples{r.Class.Name, map[figure][]bench.Seconds{}})
		}
		for _, m := range r.Measurements {
			f := figure{m.Measure, m.AtOnce}
			if !slices.Contains(order, f) {
				order = append(order, f)
			}
			classes[i].values[f] = append(classes[i].values[f], m.Values...)
		}
	}
	if len(classes) != 2 {
		return fmt.Errorf("%d files of %d classes: give results of two classes, such as A-1.json A-2.json B-1.json B-2.json", len(files), len(classes))
	}
	return table(out, classes[0], classes[1], order)
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

func table(out io.Writer, a, b *samples, order []figure) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "AT ONCE\tMEASURE\tSAMPLES\t%s P50\t%s P50\tRATIO\t%s P99\t%s P99\tRATIO\n", a.class, b.class, a.class, b.class)
	for _, f := range order {
		va, vb := a.values[f], b.values[f]
		if len(va) == 0 || len(vb) == 0 {
			continue // a class binds at once or waits: it has one or the other
		}
		slices.Sort(va)
		slices.Sort(vb)
		fmt.Fprintf(w, "%d\t%s\t%d, %d", f.atOnce, f.measure, len(va), len(vb))
		for _, percent := range []int{50, 99} {
			pa, pb := nth(va, percent), nth(vb, percent)
			fmt.Fprintf(w, "\t%s\t%s\t%.2f", pa, pb, float64(pa/pb))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// nth returns the smallest value that percent of all do not exceed.
func nth(sorted []bench.Seconds, percent int) bench.Seconds {
	return sorted[(len(sorted)*percent+99)/100-1]
}
