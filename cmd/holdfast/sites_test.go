package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/backend/local/disk"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestSites_PoolOfTheSpecBecomesAPoolOfTheHost(t *testing.T) {
	host := &disk.Host{Dir: "/var/lib/holdfast"}
	day := new(v1beta1.Duration("1d"))
	for what, test := range map[string]struct {
		spec v1beta1.PoolSpec
		want local.PoolConfig
	}{
		"a name":       {v1beta1.PoolSpec{Name: "a"}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a"}},
		"a path":       {v1beta1.PoolSpec{Name: "a", Path: "/srv/a", Engine: v1beta1.EngineDirectory}, local.PoolConfig{Name: "a", Path: "/srv/a", Engine: "directory"}},
		"devices":      {v1beta1.PoolSpec{Name: "a", Devices: &v1beta1.DeviceSelector{Model: "x"}}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a"}},
		"all settings": {v1beta1.PoolSpec{Name: "a", Overcommit: "1.5", Reserved: "7%", TrashRetention: day}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a", Overcommit: 1.5, Reserved: "7%", TrashRetention: 24 * time.Hour}},
		"a mount":      {v1beta1.PoolSpec{Name: "a", Path: "/srv/a", RequireMount: true}, local.PoolConfig{Name: "a", Path: "/srv/a", RequireMount: true}},
		"no trash":     {v1beta1.PoolSpec{Name: "a", TrashRetention: new(v1beta1.Duration("0s"))}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a", TrashRetention: backend.NoTrash}},
		"binary bytes": {v1beta1.PoolSpec{Name: "a", Reserved: "1.5Gi"}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a", Reserved: "1610612736"}},
		"round bytes":  {v1beta1.PoolSpec{Name: "a", Reserved: "2P"}, local.PoolConfig{Name: "a", Path: "/var/lib/holdfast/pools/a", Reserved: "2000000000000000"}},
	} {
		if got := site(test.spec, host).PoolConfig; got != test.want {
			t.Errorf("%s: %+v, want %+v", what, got, test.want)
		}
	}
}

func TestSites_InvalidPoolReportsTheReasonWithoutEndingTheProcess(t *testing.T) {
	host := &disk.Host{Dir: t.TempDir()}
	for want, spec := range map[string]v1beta1.PoolSpec{
		`overcommit "much"`: {Name: "a", Overcommit: "much"},
		`overcommit "0"`:    {Name: "a", Overcommit: "0"},
		`reserved "some"`:   {Name: "a", Reserved: "some"},
		`"a month"`:         {Name: "a", TrashRetention: new(v1beta1.Duration("a month"))},
		"nodeSelectorTerms": {Name: "a", NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: "disk", Operator: "Like", Values: []string{"s*"}}}}}},
		`the path "/srv/a"`: {Name: "a", Path: "/srv/a", Devices: &v1beta1.DeviceSelector{Model: "x"}},
	} {
		err := site(spec, host).Reach(t.Context(), backend.PoolExpectation{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if entries, err := os.ReadDir(host.Dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: made %v, %v", want, entries, err)
		}
	}
}

func TestSites_PoolHasADiskForEachOfItsDevicesThatTheNodeHas(t *testing.T) {
	hostfs.RequireRoot(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	host := &disk.Host{Dir: t.TempDir(), Node: "node-a", Cluster: func(context.Context) (string, error) { return "c1", nil }, Log: log}
	disks := []string{hostfs.Disk(t, 320<<20), hostfs.Disk(t, 320<<20)}
	spec := []v1beta1.PoolSpec{{Name: "fast", Reserved: "0", Devices: &v1beta1.DeviceSelector{Paths: disks, Count: 4}}}
	t.Cleanup(func() {
		places, _ := filepath.Glob(host.Place("*")) // the pattern is valid
		for _, p := range places {
			check.Report(t, nodeops.Unmount(context.Background(), p))
		}
	})
	var sites []local.Site
	for _, p := range v1beta1.EachDevice(spec) {
		sites = append(sites, site(p, host))
	}
	storage := local.OpenReachable(t.Context(), sites, log)
	t.Cleanup(func() { check.Report(t, storage.Close(context.Background())) })
	wait.Until(t, "both disks", func() bool {
		_, err := storage.Capacity(t.Context(), "fast.2")
		return err == nil
	})
	for i, name := range []string{"fast", "fast.2"} {
		if m, err := nodeops.MountAt(host.Place(name)); err != nil || m == nil || !slices.Contains(disks, m.Source) {
			t.Errorf("pool %s is on %+v, %v", name, m, err)
		}
		check.Got(storage.Create(t.Context(), backend.VolumeSpec{Name: fmt.Sprintf("v%d", i), Pool: name, Size: backend.Size{Required: 64 << 20}}))(t)
	}
	for _, name := range []string{"fast.3", "fast.4"} {
		_, err := storage.Capacity(t.Context(), name)
		if !errors.Is(err, backend.ErrUnavailable) || backend.PoolReasonOf(err) != backend.NoDisk {
			t.Errorf("pool %s: %v", name, err)
		}
	}
	// A pool that has no disk yet may have no volume: others are certainly not there.
	if _, err := storage.Get(t.Context(), "none"); !errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a volume that is not there: %v", err)
	}
	check.OK(t, storage.Delete(t.Context(), "none"))
}

func TestSites_HoldfastDirectoryIsCreated(t *testing.T) {
	host := &disk.Host{Dir: t.TempDir()}
	check.OK(t, site(v1beta1.PoolSpec{Name: "a"}, host).Reach(t.Context(), backend.PoolExpectation{}))
	if info, err := os.Stat(filepath.Join(host.Dir, "pools", "a")); err != nil || !info.IsDir() {
		t.Error(err)
	}
}

func TestSites_DeviceIsChosenByTheSpec(t *testing.T) {
	size := resource.MustParse("1Ti")
	s := deviceSelector(&v1beta1.DeviceSelector{Paths: []string{"/dev/sd*"}, MinSize: &size, Model: "M*", Rotational: new(bool)})
	if len(s.Paths) != 1 || s.MinSize != 1<<40 || s.Model != "M*" || s.Rotational == nil || *s.Rotational {
		t.Errorf("got %+v", s)
	}
	host := &disk.Host{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Cluster: clusterID(kubernetes.NewForConfigOrDie(newCluster(t).Config()))}
	err := site(v1beta1.PoolSpec{Name: "a", Devices: &v1beta1.DeviceSelector{Paths: []string{"/dev/nowhere"}}}, host).Reach(t.Context(), backend.PoolExpectation{})
	if err == nil || !strings.Contains(err.Error(), "/dev/nowhere") {
		t.Errorf("got %v", err)
	}
}

// newCluster has what every cluster has.
func newCluster(t *testing.T) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	namespaces := kubernetes.NewForConfigOrDie(api.Config()).CoreV1().Namespaces()
	check.Got(namespaces.Create(t.Context(), &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}, metav1.CreateOptions{}))(t)
	return api
}

func TestSites_ClusterIsIdentifiedByItsKubeSystemNamespace(t *testing.T) {
	c := kubernetes.NewForConfigOrDie(newCluster(t).Config())
	system := check.Got(c.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}))(t)
	if id, err := clusterID(c)(t.Context()); err != nil || id == "" || id != string(system.UID) {
		t.Errorf("known as %q, %v; want %q", id, err, system.UID)
	}
	if id, err := clusterID(kubernetes.NewForConfigOrDie(miniapi.New(t).Config()))(t.Context()); err == nil {
		t.Errorf("an API without it: %q", id)
	}
}
