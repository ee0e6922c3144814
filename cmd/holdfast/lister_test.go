package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

// stored is an API with a volume, a snapshot and something in a trash, and the flags to reach it.
func stored(t *testing.T) []string {
	t.Helper()
	return []string{"--kubeconfig", reachable(t, storedAPI(t).URL()), "--context", "here"}
}

func storedAPI(t *testing.T) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	kinds := holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1()
	_, volume := kinds.Volumes().Create(t.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: v1beta1.VolumeSpec{Name: "pvc-1", Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/orders")}}, metav1.CreateOptions{})
	_, snapshot := kinds.Snapshots().Create(t.Context(), &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: "s-1"}, Spec: v1beta1.SnapshotSpec{Name: "s-1", SourceRef: v1beta1.FromVolume("pvc-1"), Node: "a"}}, metav1.CreateOptions{})
	n, node := kinds.StorageNodes().Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	check.OK(t, errors.Join(volume, snapshot, node))
	n.Status.Trash = []v1beta1.TrashedVolume{{Name: "pvc-9", Size: resource.MustParse("3Gi"), DeletionTime: metav1.NewTime(time.Now()), ExpirationTime: metav1.NewTime(time.Now())}}
	check.Got(kinds.StorageNodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
	return api
}

func TestVolumes_WithoutAPoolFlagAreThoseOfTheCluster(t *testing.T) {
	flags := stored(t)
	for line, want := range map[string]string{
		"volumes": "shop/orders", "volumes list": "pvc-1", "volumes trash": "3Gi", "snapshots": "s-1", "snapshots list": "pvc-1",
	} {
		out, err := call(t, append(strings.Fields(line), flags...)...)
		if err != nil || !strings.HasPrefix(out, "NAME ") || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		out, err = call(t, append(append(strings.Fields(line), "-o", "json"), flags...)...)
		var rows []struct{ Name string }
		if jsonErr := json.Unmarshal([]byte(out), &rows); err != nil || jsonErr != nil || len(rows) != 1 {
			t.Errorf("%s: %v, %v\n%s", line, err, jsonErr, out)
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
		out, err := call(t, append(strings.Fields(line), flags...)...)
		if err == nil || errors.Is(err, errUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q\n%s", line, err, want, out)
		}
	}
}

func TestHelp_OfACommandNamesItsVerbsAndTheirArguments(t *testing.T) {
	for _, c := range newRoot().Commands() {
		out := check.Got(call(t, c.Name(), "--help"))(t)
		for _, verb := range c.Commands() {
			if !strings.Contains(out, "  "+verb.Use) || !strings.Contains(out, verb.Short) {
				t.Errorf("%s is not in:\n%s", verb.Use, out)
			}
			own, err := call(t, c.Name(), verb.Name(), "--help")
			helped, helpErr := call(t, "help", c.Name(), verb.Name())
			if err != nil || helpErr != nil || !strings.HasPrefix(own, "Usage: holdfast "+c.Name()+" "+verb.Use) || helped != own {
				t.Errorf("%v, %v\n%s\n%s", err, helpErr, own, helped)
			}
		}
	}
	out, err := call(t, "volumes", "adopt", "--help")
	for _, want := range []string{"--claim NAME", "--print", "--storage-class NAME", "--access-mode MODE", "--reclaim-policy POLICY", "--timeout DURATION", "--namespace NAMESPACE", "--holdfast-namespace NAMESPACE", "--output FORMAT"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
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
