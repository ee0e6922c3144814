package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
)

// serve opens a pool as a running standalone does and returns the value of --pool for it.
func serve(t *testing.T) (*local.Backend, string) {
	t.Helper()
	flag := "name=fast,path=" + t.TempDir()
	config, err := local.ParsePool(flag, parseDuration)
	if err != nil {
		t.Fatal(err)
	}
	b, err := local.Open(t.Context(), []local.PoolConfig{config}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b, flag
}

func TestVolumesAreListedDeletedAndRestoredBesideAServingProcess(t *testing.T) {
	b, pool := serve(t)
	_, err := b.Create(t.Context(), backend.VolumeSpec{Name: "v", Mode: backend.Block, Size: backend.Size{Required: 64 << 20}, Labels: map[string]string{
		"csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pvc/name": "orders",
	}})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(words []string, args ...string) {
		t.Helper()
		out, err := call(t, append([]string{"volumes", "--pool", pool}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%v printed, without %q:\n%s", args, word, out)
			}
		}
	}
	expect([]string{"ID", "CONDITION", "v ", "fast", "64Mi", "Block", "shop/orders", "ok"})
	if err := b.Delete(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	expect([]string{"KEPT UNTIL", "v ", "fast", "64Mi"}, "--trash")
	expect([]string{"volume v (64Mi) is back in pool fast"}, "--restore", "v")
	expect([]string{"shop/orders"})
	if v, err := b.Get(t.Context(), "v"); err != nil || v.Size != 64<<20 {
		t.Errorf("the serving process has %v, %v", v, err)
	}
	for id, want := range map[string]string{"v": "exists", "gone": "not in the trash", "../x": "../x"} {
		if _, err := call(t, "volumes", "--pool", pool, "--restore", id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--restore %s: %v", id, err)
		}
	}
}
