package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// serve opens a pool as a running standalone does and returns the value of --pool for it.
func serve(t *testing.T) (*local.Backend, string) {
	t.Helper()
	flag := "name=fast,path=" + t.TempDir()
	config := check.Got(local.ParsePool(flag, parseDuration))(t)
	b := check.Got(local.Open(t.Context(), []local.PoolConfig{config}, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { check.Report(t, b.Close(context.Background())) })
	return b, flag
}

func TestVolumes_AreListedDeletedAndRestoredBesideAServingProcess(t *testing.T) {
	b, pool := serve(t)
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "v", Mode: backend.Block, Size: backend.Size{Required: 64 << 20}, Labels: map[string]string{
		"csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pvc/name": "orders",
	}}))(t)
	expect := func(words []string, args ...string) {
		t.Helper()
		out := check.Got(call(t, append([]string{"volumes", "--pool", pool}, args...)...))(t)
		expects(t, out, words...)
	}
	expect([]string{"NAME", "CONDITION", "v ", "fast", "64Mi", "shop/orders", "Ready", "ok"})
	expect([]string{"MODE", "CREATED", "Block", `"v"`}, "-o", "wide")
	expect([]string{"- claimRef:\n    name: orders\n    namespace: shop\n", "csiName: v\n", "creationTime: ", "mode: Block\n", "name: v\n", "size: 67108864\n"}, "list", "-oyaml")
	expect([]string{"volume.holdfast.dev/v\n"}, "list", "-o", "name")
	check.OK(t, b.Delete(t.Context(), "v"))
	expect([]string{"EXPIRES", "v ", "fast", "64Mi", "shop/orders"}, "--trash")
	expect([]string{"volume v (64Mi) is back in pool fast"}, "--restore", "v")
	check.OK(t, b.Delete(t.Context(), "v"))
	expect([]string{"EXPIRES", "v ", `"v"`}, "trash", "-o", "wide")
	expect([]string{"volume v (64Mi) is back in pool fast"}, "restore", "v")
	expect([]string{"shop/orders"})
	if v, err := b.Get(t.Context(), "v"); err != nil || v.Size != 64<<20 {
		t.Errorf("the serving process has %v, %v", v, err)
	}
	for id, want := range map[string]string{"v": "exists", "gone": "not in the trash", "../x": "../x"} {
		if _, err := call(t, "volumes", "restore", "--pool", pool, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restore %s: %v", id, err)
		}
	}
}

func TestSnapshots_OfAPoolAreListedBesideAServingProcess(t *testing.T) {
	b, pool := serve(t)
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "v", Mode: backend.Block, Size: backend.Size{Required: 64 << 20}}))(t)
	check.Got(b.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(t)
	for format, want := range map[string]string{"table": "fast", "json": `"name": "v"`, "name": "snapshot.holdfast.dev/s\n"} {
		if out, err := call(t, "snapshots", "--pool", pool, "-o", format); err != nil || !strings.Contains(out, want) {
			t.Errorf("-o %s: %v, without %q:\n%s", format, err, want, out)
		}
	}
}

func TestVolumes_WithoutAClusterAndAPoolTheErrorNamesBothWays(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, line := range []string{"volumes", "volumes list", "volumes trash", "volumes restore v", "snapshots"} {
		_, err := callLine(t, line)
		for _, want := range []string{"--kubeconfig", "KUBECONFIG", "--pool name=fast,path=/srv/fast"} {
			if exitCode(err) != 3 || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, without %s", line, err, want)
			}
		}
	}
}
