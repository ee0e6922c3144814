package ganesha

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func (r *running) statistics() Statistics {
	r.t.Helper()
	s := check.Got(r.Statistics(r.within()))(r.t)
	return s
}

func TestStatistics_ReportTheStateOfTheServer(t *testing.T) {
	r := run(t, newExport(t, 1), newExport(t, 2))
	r.up()
	if s := r.statistics(); !s.Up || s.InGrace || s.Exports != 2 || s.Clients != 0 || s.Restarts != 0 {
		t.Errorf("at first they are %+v", s)
	}
	r.kill()
	r.up()
	if s := r.statistics(); !s.Up || s.Exports != 2 || s.Restarts != 1 {
		t.Errorf("after a death they are %+v", s)
	}
	r.stop()
	if s := r.statistics(); s.Up || s.Exports != 0 || s.Restarts != 1 {
		t.Errorf("after the end they are %+v", s)
	}
}

func TestStatistics_CounterNeverDecreases(t *testing.T) {
	read, written := Way{"4.2", false}, Way{"4.2", true}
	one, two := &process{}, &process{}
	var all tally
	for i, step := range []struct {
		of         *process
		now        map[exportWay]Traffic
		read, more Traffic
	}{
		{one, map[exportWay]Traffic{{1, read}: {1, 100, 0}}, Traffic{1, 100, 0}, Traffic{}},
		{one, map[exportWay]Traffic{{1, read}: {3, 300, 1}, {2, written}: {1, 10, 0}}, Traffic{3, 300, 1}, Traffic{1, 10, 0}},
		{one, map[exportWay]Traffic{{2, written}: {1, 10, 0}}, Traffic{3, 300, 1}, Traffic{1, 10, 0}},                         // the first was removed
		{one, map[exportWay]Traffic{{1, read}: {1, 50, 0}, {2, written}: {1, 10, 0}}, Traffic{4, 350, 1}, Traffic{1, 10, 0}},  // another has its id
		{two, map[exportWay]Traffic{{1, read}: {2, 70, 0}, {2, written}: {1, 10, 0}}, Traffic{6, 420, 1}, Traffic{2, 20, 0}},  // restarted
		{two, map[exportWay]Traffic{{1, read}: {2, 70, 0}, {2, written}: {2, 20, 5}}, Traffic{6, 420, 1}, Traffic{3, 30, 5}},  //
		{two, map[exportWay]Traffic{{1, read}: {1, 100, 0}, {2, written}: {2, 20, 5}}, Traffic{7, 520, 1}, Traffic{3, 30, 5}}, // another, whose calls were larger
	} {
		got := all.add(step.of, step.now)
		want := map[Way]Traffic{read: step.read}
		if step.more != (Traffic{}) {
			want[written] = step.more
		}
		if !maps.Equal(got, want) {
			t.Errorf("step %d: it is %v, want %v", i, got, want)
		}
	}
}

func TestClients_AreMeasured(t *testing.T) {
	requireClient(t)
	e := exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20))
	r := run(t, e)
	r.up()
	target := r.mount(e.Pseudo)
	content := bytes.Repeat([]byte("x"), 1<<20)
	check.OK(t, os.WriteFile(filepath.Join(target, "file"), content, 0o600))
	f := check.Got(os.OpenFile(filepath.Join(target, "file"), os.O_RDONLY|unix.O_DIRECT, 0))(t)
	check.Got(f.ReadAt(make([]byte, 1<<19), 0))(t)
	f.Close()
	s := r.statistics()
	read, written := s.Traffic[Way{"4.2", false}], s.Traffic[Way{"4.2", true}]
	if written.Bytes != 1<<20 || written.Operations == 0 || read.Bytes != 1<<19 || read.Operations == 0 || s.Clients != 1 {
		t.Errorf("they are %+v", s)
	}
	unmount(t, target)
}
