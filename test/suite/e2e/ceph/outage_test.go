package ceph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestOutage_ClaimsWaitAndGoOn(t *testing.T) {
	s := begin(t)
	one, _ := withClients(t)
	s.Claim("data", "1Gi", kube.OfClass(imageClass))
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(one), kube.Script("while :; do date >>/data/now; sync /data/now; sleep 0.2; done"))
	s.Ready("writer")
	storage.Kill(ceph.Monitor)
	back := func() error { return storage.Start(ceph.Monitor) }
	t.Cleanup(func() {
		if back != nil {
			check.Report(t, back())
		}
	})
	s.Claim("waits", "1Gi", kube.OfClass(imageClass))
	s.AwaitEvent("waits", "ProvisioningFailed", "Ceph")
	check.OK(t, back())
	back = nil
	check.OK(t, storage.AwaitHealthy(context.WithoutCancel(t.Context())))
	s.Volume("waits")
	if p, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), "writer", metav1.GetOptions{}); err != nil || p.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the writer was started again: %v", err)
	}
}

// restart kills a daemon of Ceph while it is used.
func restart(t *testing.T, d ceph.Daemon) {
	t.Helper()
	storage.Kill(d)
	check.OK(t, errors.Join(storage.Start(d), storage.AwaitHealthy(t.Context())))
}

func TestOutage_NothingIsLeftOfFiftyClaims(t *testing.T) {
	s := begin(t)
	withClients(t)
	var before map[string]string
	for round := range 6 { // the first leaves what is never removed, such as the list of images
		var names []string
		for i := range 5 {
			for _, class := range classes {
				name := fmt.Sprintf("claim-%d-%s", i, class)
				s.Claim(name, "64Mi", kube.OfClass(class))
				names = append(names, name)
			}
		}
		if round > 0 {
			restart(t, []ceph.Daemon{ceph.OSD, ceph.Monitor}[round%2])
		}
		for _, name := range names {
			s.Volume(name)
		}
		for _, class := range classes {
			s.Snapshot("snapshot-"+class, "claim-0-"+class)
			s.Claim("restored-"+class, "64Mi", kube.OfClass(class), kube.From("VolumeSnapshot", "snapshot-"+class))
			s.Volume("restored-" + class)
		}
		check.OK(t, s.Discard(t.Context(), metav1.ListOptions{}))
		if round > 0 {
			restart(t, []ceph.Daemon{ceph.Monitor, ceph.OSD}[round%2])
		}
		check.OK(t, s.Empty(t.Context()))
		if round == 0 {
			before = afterFirstRound(t, s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	s.Eventually(ctx, "the pools to have what they had before", func(context.Context) error {
		after, err := content(t.Context())
		for name, has := range after {
			if had, was := before[name]; !was || had != has {
				err = errors.Join(err, fmt.Errorf("%s has %q, and had %q", name, has, had))
			}
		}
		return err
	})
}

// afterFirstRound is what the pools have when nothing of what was deleted is left.
func afterFirstRound(t *testing.T, s *kube.Space) (found map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	if !s.Eventually(ctx, "the pools to be empty", func(context.Context) (err error) {
		if found, err = content(t.Context()); err != nil {
			return err
		}
		for name := range found {
			if ofImage.MatchString(strings.TrimPrefix(name, "object ")) || strings.HasPrefix(name, "subvolume ") {
				return fmt.Errorf("%s is there", name)
			}
		}
		if promised := found["object holdfast.promises"]; promised != "" { // the last of an image that goes
			return fmt.Errorf("%s is promised to", promised)
		}
		return nil
	}) {
		t.FailNow()
	}
	return found
}

// ofImage is an object of one image.
var ofImage = regexp.MustCompile(`^(rbd_data|rbd_header|rbd_object_map|rbd_id|journal)[._]`)

// content is what the pools have: the objects of that of the images with the keys of the omaps of those that are of many, the subvolumes with their
// snapshots, and the objects of the files in them.
func content(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	objects, err := lines(storage.Command(ctx, "rados", "--pool", images, "ls"))
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if ofImage.MatchString(object) { // which goes with it, but for the mark that it had a snapshot
			if _, gone := storage.Command(ctx, "rados", "--pool", images, "stat", object); gone == nil {
				all["object "+object] = ""
			}
			continue
		}
		keys, err := lines(storage.Command(ctx, "rados", "--pool", images, "listomapkeys", object))
		if err != nil {
			return nil, err
		}
		all["object "+object] = strings.Join(keys, " ")
	}
	trash, err := storage.Command(ctx, "rbd", "--pool", images, "trash", "ls", "--all")
	if err != nil {
		return nil, err
	}
	all["trash of images"] = trash
	subvolumes, err := storage.Ceph(ctx, "fs", "subvolume", "ls", ceph.FileSystem, "holdfast", "--format", "json")
	if err != nil {
		return nil, err
	}
	var named []struct{ Name string }
	if err := json.Unmarshal([]byte(subvolumes), &named); err != nil {
		return nil, fmt.Errorf("%q: %w", subvolumes, err)
	}
	for _, v := range named {
		all["subvolume "+v.Name] = ""
	}
	files, err := lines(storage.Command(ctx, "rados", "--pool", ceph.FileSystem+".data", "ls"))
	for _, object := range files {
		all["file data "+object] = ""
	}
	return all, err
}

func lines(out string, err error) ([]string, error) {
	return slices.Sorted(strings.FieldsFuncSeq(out, func(r rune) bool { return r == '\n' })), err
}
