package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// stored is an API with a volume, a snapshot and something in a trash, and the flags to reach it.
func stored(t *testing.T) []string {
	t.Helper()
	return at(t, storedAPI(t).URL())
}

func storedAPI(t *testing.T) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	kinds := kindsOf(api)
	volume := v1beta1.VolumeSpec{Name: "pvc-1", Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/orders")}
	wait.Put(t, &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: volume}, kinds.Volumes())
	snapshot := v1beta1.SnapshotSpec{Name: "s-1", SourceRef: v1beta1.FromVolume("pvc-1"), Node: "a"}
	wait.Put(t, &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s-1"}, Spec: snapshot}, kinds.Snapshots())
	trash := []v1beta1.TrashedVolume{{Name: "pvc-9", Size: resource.MustParse("3Gi"), DeletionTime: metav1.Now(), ExpirationTime: metav1.Now()}}
	wait.Put(t, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1beta1.StorageNodeStatus{Trash: trash}}, kinds.StorageNodes())
	return api
}

func TestVolumes_WithoutAPoolFlagAreThoseOfTheCluster(t *testing.T) {
	flags := stored(t)
	for line, want := range map[string]string{
		"volumes": "shop/orders", "volumes list": "pvc-1", "volumes trash": "3Gi", "snapshots": "s-1", "snapshots list": "pvc-1",
	} {
		out, err := callLine(t, line, flags...)
		if err != nil || !strings.HasPrefix(out, "NAME ") || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

func TestVerbs_OfVolumesReachTheClusterWithTheirNameAndFlagsInAnyOrder(t *testing.T) {
	flags := stored(t)
	for line, want := range map[string]string{
		"volumes restore pvc-7 --timeout 1m":            "no volume pvc-7",
		"volumes restore --node b pvc-7 --claim shop/x": "--node b",
		"volumes delete pvc-9 --reason old":             "in the trash of a",
		"volumes adopt pvc-1 --claim shop/orders":       "no size",
		"snapshots delete --yes s-9":                    "no snapshot s-9",
	} {
		out, err := callLine(t, line, flags...)
		if err == nil || errors.Is(err, errUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q\n%s", line, err, want, out)
		}
	}
}

func TestAsk_ReadsALineOrEnds(t *testing.T) {
	var out strings.Builder
	if answer, err := ask(t.Context(), strings.NewReader("pvc-1\nmore\n"), &out, "Sure? "); err != nil || answer != "pvc-1" || out.String() != "Sure? " {
		t.Errorf("%q, %v after %q", answer, err, &out)
	}
	if _, err := ask(t.Context(), strings.NewReader("pvc-1"), io.Discard, ""); !errors.Is(err, io.EOF) {
		t.Errorf("a line that does not end: %v", err)
	}
	silent, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, silent, io.Discard, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the command: %v", err)
	}
}
