package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops/child"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// doomed returns this process, which is killed at a step.
func doomed(step int) *mortal.Process {
	p := mortal.New(step)
	p.Die = func(step int, what string) {
		fmt.Fprintf(os.Stderr, "it dies at step %d: %s\n", step, what)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return p
}

// doomedDisk is the disk as such a process uses it.
type doomedDisk struct {
	*export.Backend
	doomed *mortal.Process
}

func (d doomedDisk) Create(ctx context.Context, spec backend.VolumeSpec) (v *backend.Volume, err error) {
	err = d.doomed.Do("the volume is made", func() error {
		v, err = d.Backend.Create(ctx, spec)
		return err
	})
	return v, err
}

func (d doomedDisk) Delete(ctx context.Context, id backend.ID) error {
	return d.doomed.Do("the volume is deleted", func() error { return d.Backend.Delete(ctx, id) })
}

// placeVariable names the file that makes the test below play the process that is killed.
const placeVariable = "HOLDFAST_TEST_PROVISIONER_PLACE"

// play is the process that is killed.
func play(t *testing.T) {
	data, err := os.ReadFile(os.Getenv(placeVariable))
	var p place
	check.OK(t, errors.Join(err, json.Unmarshal(data, &p)))
	volumes, _, err := p.open()
	check.OK(t, err)
	d := doomed(p.DiesAt)
	config := d.Client(&rest.Config{Host: p.Host, BearerToken: p.Token, TLSClientConfig: p.TLS, QPS: -1})
	provisioner := check.Got(New(p.config(t, doomedDisk{volumes, d}, kubernetes.NewForConfigOrDie(config))))(t)
	t.Fatalf("it lives, and ended with %v", provisioner.Run(context.Background()))
}

// ending is when a process is killed: at a step of the disk's, or at a counted one of its own.
type ending struct {
	at     crashpoint.Step
	number int
	bound  bool // it begins when the claim is bound
}

func (e ending) String() string {
	switch {
	case e.at == "":
		return fmt.Sprint("step ", e.number)
	case e.bound:
		return "deletion at " + string(e.at)
	}
	return string(e.at)
}

// The steps of the disk, those of a deletion last.
var (
	makingSteps = []crashpoint.Step{
		crashpoint.BuildBegun, crashpoint.BuildFilled, crashpoint.BuildCommitted,
		crashpoint.ExportMounted, crashpoint.ExportCopied, crashpoint.ExportRecorded, crashpoint.ExportPut,
	}
	deletionSteps = []crashpoint.Step{
		crashpoint.ExportRemoved, crashpoint.ExportUnmounted, crashpoint.DeleteTrashed, crashpoint.DeletePartly,
		crashpoint.ExportEmptied, crashpoint.ExportCopied,
	}
)

// TestKill_AtAnyStepLeavesNothingOnARealDisk is TestKill_AtAnyStepLeaksNothing with volumes that are
// images and mounted, and a process that is really killed. Of every second the user deletes the claim while no process runs.
func TestKill_AtAnyStepLeavesNothingOnARealDisk(t *testing.T) {
	if os.Getenv(placeVariable) != "" {
		play(t)
		return
	}
	a := realServer(t)
	p := newPlace(t, a)
	stride, variants := 3, 1
	if hostfs.All() {
		stride, variants = 1, 2
	}
	k := &killing{place: p, binary: crash.Binary(t), class: a.class(p.Name, nil)}
	k.succeed(a, t, func(*Provisioner) {})
	k.empty = p.files(t)
	count := 0
	try := func(e ending) (died bool) {
		count++
		for _, deleted := range []bool{count%2 == 1, count%2 == 0}[:variants] {
			t.Run(fmt.Sprintf("%s, deleted %t", e, deleted), func(t *testing.T) {
				died = k.once(a.in(t), t, e, fmt.Sprintf("data-%d-%t", count, deleted), deleted)
			})
		}
		return died
	}
	for i, step := range slices.Concat(makingSteps, deletionSteps) {
		if i%4 == 3 || hostfs.All() {
			if !try(ending{at: step, bound: i >= len(makingSteps)}) {
				t.Errorf("no process reaches step %s", step)
			}
		}
	}
	for number := 1; try(ending{number: number}); number += stride {
		continue // until one comes through
	}
	if count < 6 {
		t.Errorf("only %d steps were found", count)
	}
}

// killing is what all deaths have in common.
type killing struct {
	*place
	binary, class string
	empty         []string
}

// once makes and deletes a claim over a death, and returns false if the process came through. The claim may be deleted
// while no process runs.
func (k *killing) once(a *api, t *testing.T, e ending, name string, deleted bool) (died bool) {
	a.claim(name, k.class, k.Name)
	if e.bound {
		k.succeed(a, t, func(*Provisioner) { a.bound(name) })
	}
	died = k.kill(a, t, e, name)
	if deleted {
		a.removeClaim(name)
	}
	k.succeed(a, t, func(p *Provisioner) {
		a.useUpRest(name)
		wait.Until(a.t, "nothing is left", func() bool { return len(a.persistentVolumes(k.Name)) == 0 && len(p.journal.all()) == 0 })
	})
	for _, what := range k.left(t, k.empty) {
		t.Errorf("%s is left", what)
	}
	return died
}

// kill runs the process that dies while a claim is made and deleted.
func (k *killing) kill(a *api, t *testing.T, e ending, name string) (died bool) {
	t.Helper()
	doomed := *k.place
	doomed.DiesAt = e.number
	file := filepath.Join(t.TempDir(), "place")
	data, err := json.Marshal(doomed)
	check.OK(t, errors.Join(err, os.WriteFile(file, data, 0o600)))
	cmd := exec.Command(k.binary, "-test.v", "-test.run", "^TestKill_AtAnyStepLeavesNothingOnARealDisk$")
	cmd.Env = append(os.Environ(), placeVariable+"="+file, "HOLDFAST_CRASH_AT="+string(e.at), "HOLDFAST_API=")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	ended, err := child.Start(cmd)
	check.OK(t, err)
	over := make(chan struct{})
	go func() { err = <-ended; close(over) }()
	if a.useUp(name, k.Name, over) {
		cmd.Process.Kill()
		<-over
		return false
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("it was not killed, but ended with %v", err)
	}
	return true
}

// succeed runs the next process until the test has seen enough.
func (k *killing) succeed(a *api, t *testing.T, enough func(*Provisioner)) {
	t.Helper()
	volumes, closes, err := k.open()
	check.OK(t, err)
	defer func() { check.Report(t, closes()) }()
	p := check.Got(New(k.config(t, volumes, a.client)))(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer alongside.Run(ctx, t, cancel, p.Run)()
	enough(p)
}
