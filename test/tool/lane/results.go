package main

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// result is what the last run of a package, or of a check, has shown.
type result struct {
	name    string // of the package or the check
	hash    string // of all that it depends on
	commit  string
	day     time.Time
	seconds int
	state   string // passed, flaked or failed
}

// The states of results.
const (
	passed = "passed"
	flaked = "flaked"
	failed = "failed"
)

// results are those of a lane, by name. They are in a file of the lane's own, which git ignores.
type results struct {
	file string
	of   map[string]result
}

func (r *runner) results(l lane) (*results, error) {
	all := &results{file: filepath.Join(r.root, "bin/results", l.name+".tsv"), of: map[string]result{}}
	f, err := os.Open(all.file)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := csv.NewReader(f)
	lines.Comma, lines.FieldsPerRecord = '\t', 6
	rows, err := lines.ReadAll()
	if err != nil {
		return all, nil // of another form: as if there were none
	}
	for _, row := range rows {
		day, err := time.Parse(time.RFC3339, row[3])
		seconds, err2 := strconv.Atoi(row[4])
		if errors.Join(err, err2) == nil {
			all.of[row[0]] = result{row[0], row[1], row[2], day, seconds, row[5]}
		}
	}
	return all, nil
}

// put writes a result at once, so that a run that is interrupted loses only what had not ended.
func (all *results) put(one result) error {
	all.of[one.name] = one
	if err := os.MkdirAll(filepath.Dir(all.file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(all.file + ".new")
	if err != nil {
		return err
	}
	lines := csv.NewWriter(f)
	lines.Comma = '\t'
	for _, name := range slices.Sorted(maps.Keys(all.of)) {
		one := all.of[name]
		row := []string{one.name, one.hash, one.commit, one.day.UTC().Format(time.RFC3339), strconv.Itoa(one.seconds), one.state}
		if err := lines.Write(row); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	lines.Flush()
	if err := errors.Join(lines.Error(), f.Close()); err != nil {
		return err
	}
	return os.Rename(all.file+".new", all.file)
}

// have reports whether a result says that nothing has to be run again.
func (all *results) have(name, hash string) bool {
	one := all.of[name]
	return one.state == passed && one.hash == hash
}

// oldest is the day of the oldest result, and nothing where there is none.
func (all *results) oldest() (day time.Time) {
	for _, one := range all.of {
		if day.IsZero() || one.day.Before(day) {
			day = one.day
		}
	}
	return day
}

func stateOf(ok bool) string {
	if ok {
		return passed
	}
	return failed
}

// keep keeps a result of the lane, if it keeps any.
func (o *outcome) keep(name, hash, state string, took time.Duration) error {
	if o.kept == nil {
		return nil
	}
	return o.kept.put(result{name, hash, o.commit, time.Now(), int(took.Seconds()), state})
}
