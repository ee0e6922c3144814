package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/admin/storageos"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// mustRefuse expects that the server refused an object for one field, and says which.
func mustRefuse(t *testing.T, err error, field string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want a refusal of %s", err, field)
		return
	}
	var fields []string
	for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
		// The server looks at a schema first, and says so when that keeps it from the rules.
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue
		}
		at := cause.Field
		if at == "<nil>" { // a rule on metadata has no path, so that its message begins with it
			message := strings.TrimPrefix(strings.TrimPrefix(cause.Message, "Invalid value: "), `"object": `) // the latter before 1.35
			at = strings.TrimSuffix(strings.Fields(message)[0], ":")
		}
		fields = append(fields, at)
	}
	if !slices.Equal(slices.Compact(fields), []string{field}) { // two rules may refuse it
		t.Errorf("refused are the fields %q, want only %s: %v", fields, field, err)
	}
}

// wouldCreate asks whether the server would take an object, after a change.
func wouldCreate[T metav1.Object](t *testing.T, kind clientOf[T], o T, change func(T)) error {
	t.Helper()
	change(o)
	_, err := kind.Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// wouldUpdate asks whether the server would take a change of an object.
func wouldUpdate[T interface{ DeepCopy() T }](t *testing.T, kind clientOf[T], o T, change func(T)) error {
	t.Helper()
	changed := o.DeepCopy()
	change(changed)
	_, err := kind.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// What each field refuses, and which changes, test/suite/schema tests with the API server's validation as a library. Of each
// sort of rule one is broken here, and what that library does not look at: the names of objects, and lists in which nothing
// is twice.
func TestRules_OfEachSortOneIsBroken(t *testing.T) {
	needServer(t)
	ofVolume := func(change func(*v1beta1.Volume)) error { return wouldCreate(t, volumes(), fullVolume(), change) }
	ofSnapshot := func(change func(*v1beta1.Snapshot)) error {
		return wouldCreate(t, snapshots(), fullSnapshot(), change)
	}
	ofServer := func(change func(*v1beta1.NFSServer)) error { return wouldCreate(t, servers(), fullServer(), change) }
	noPool := func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Ceph.Pool = "" }
	for field, err := range map[string]error{
		"spec.node":               ofVolume(func(v *v1beta1.Volume) { v.Spec.Node = strings.Repeat("n", 254) }),
		"spec.pool":               ofVolume(func(v *v1beta1.Volume) { v.Spec.Pool = "../fast" }),
		"spec.mode":               ofVolume(func(v *v1beta1.Volume) { v.Spec.Mode = "filesystem" }),
		"spec.populatedBy":        ofVolume(func(v *v1beta1.Volume) { v.Spec.SourceRef = nil }),
		"spec.size.required":      ofVolume(func(v *v1beta1.Volume) { v.Spec.Size = v1beta1.VolumeSize{Required: amount("-1")} }),
		"spec.labels":             ofVolume(manyLabels),
		"spec.group.volumes":      ofSnapshot(func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"b", "c"} }),
		"spec.group.volumes[1]":   ofSnapshot(func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"a", "a"} }),
		"spec":                    ofServer(func(s *v1beta1.NFSServer) { s.Spec.Storage = nil }),
		"spec.exports.clients[1]": ofServer(func(s *v1beta1.NFSServer) { s.Spec.Exports.Clients = []string{"10.0.0.1", "*"} }),
		"spec.gracePeriod":        ofServer(func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("1.5s")) }),
		"spec.pools[0].ceph.pool": wouldCreate(t, clusters(), cephCluster("holdfast"), noPool),
	} {
		t.Run(field, func(t *testing.T) { mustRefuse(t, err, field) })
	}
	for _, err := range []error{ // names that are fit for other objects
		ofVolume(func(v *v1beta1.Volume) { v.Name = "a.b" }), ofVolume(func(v *v1beta1.Volume) { v.Name = strings.Repeat("a", 64) }),
		ofSnapshot(func(s *v1beta1.Snapshot) { s.Name = "a.b" }), ofServer(func(s *v1beta1.NFSServer) { s.Name = "a.b" }),
		ofServer(func(s *v1beta1.NFSServer) { s.Name = strings.Repeat("a", 49) }),
	} {
		mustRefuse(t, err, "metadata.name")
	}
	for _, id := range []string{"0", "pvc-8f14e45f", strings.Repeat("a", 63)} {
		check.Report(t, ofVolume(func(v *v1beta1.Volume) { v.Name = id }))
	}
	check.Report(t, ofServer(func(s *v1beta1.NFSServer) { s.Name = strings.Repeat("a", 48) }))
}

func manyLabels(v *v1beta1.Volume) {
	for i := range 64 {
		v.Spec.Labels[strconv.Itoa(i)] = ""
	}
}

func TestRules_OfEachSortOneRefusesAChange(t *testing.T) {
	needServer(t)
	volume := create(t, volumes(), fullVolume())
	snapshot := create(t, snapshots(), fullSnapshot())
	server := create(t, servers(), fullServer())
	cluster := create(t, clusters(), cephCluster("ceph-of-the-api-suite"))
	otherCluster := func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Ceph.FSID = "99999999-2222-3333-4444-555555555555" }
	otherPool := func(c *v1beta1.StorageCluster) { c.Spec.Pools[0].Name, c.Spec.Pools[0].Ceph.Pool = "other", "other" }
	for field, err := range map[string]error{
		"spec.pool":               wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.Pool = "slow" }),
		"spec.claimRef":           wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil }),
		"spec.deletion":           wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.Deletion = nil }),
		"spec.size.required":      wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.Size.Required = amount("10239Mi") }),
		"spec.size.limit":         wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.Size.Required = amount("21Gi") }),
		"spec.group":              wouldUpdate(t, snapshots(), snapshot, func(s *v1beta1.Snapshot) { s.Spec.Group = nil }),
		"spec.storage.size":       wouldUpdate(t, servers(), server, func(s *v1beta1.NFSServer) { s.Spec.Storage.Size = amount("9Gi") }),
		"spec.engine":             wouldUpdate(t, servers(), server, func(s *v1beta1.NFSServer) { s.Spec.Engine, s.Spec.MaxExports = "", 0 }),
		"spec.pools[0].ceph.fsid": wouldUpdate(t, clusters(), cluster, otherCluster),
	} {
		t.Run(field, func(t *testing.T) { mustRefuse(t, err, field) })
	}
	for _, err := range []error{
		wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) { v.Spec.Size.Required = amount("20Gi") }),
		wouldUpdate(t, volumes(), volume, func(v *v1beta1.Volume) {
			v.Labels, v.Finalizers = map[string]string{"a": "b"}, []string{v1beta1.AgentFinalizer}
		}),
		wouldUpdate(t, snapshots(), snapshot, func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"b", "a"} }),
		wouldUpdate(t, servers(), server, func(s *v1beta1.NFSServer) { s.Spec.Storage.Size = amount("11Gi") }),
		wouldUpdate(t, clusters(), cluster, otherPool),
	} {
		check.Report(t, err)
	}
}

func TestSize_WrittenByAPersonCanBeWrittenBackByAProgram(t *testing.T) {
	needServer(t)
	text := `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"name":"test-raw"},"spec":{"name":"a","node":"` + nowhere + `",
		"claimRef":null,"pool":"","mode":"","fsType":"","provisioning":"","mkfsOptions":[],"inodes":0,"labels":{},"onNodeLoss":"","size":` + "%s" + `}}`
	for _, size := range []string{`{}`, `{"required":"1.5Gi","limit":"2048Mi"}`, `{"required":1000}`, `{"required":null,"limit":"1Gi"}`} {
		t.Run(size, func(t *testing.T) {
			var v v1beta1.Volume
			check.OK(t, client.HoldfastV1beta1().RESTClient().Post().Resource("volumes").Body(fmt.Appendf(nil, text, size)).Do(t.Context()).Into(&v))
			t.Cleanup(func() { check.Report(t, volumes().Delete(context.Background(), v.Name, metav1.DeleteOptions{})) })
			check.Report(t, wouldUpdate(t, volumes(), &v, func(v *v1beta1.Volume) { v.Finalizers = []string{v1beta1.AgentFinalizer} }))
		})
	}
}

func TestStorageCluster_ConvertedFromStorageOSIsAccepted(t *testing.T) {
	needServer(t)
	samples, err := filepath.Glob("../../../admin/storageos/testdata/*.yaml")
	if err != nil || len(samples) < 3 {
		t.Fatalf("samples are %q, %v", samples, err)
	}
	for _, file := range samples {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var manifest map[string]any
			check.OK(t, yaml.Unmarshal(check.Got(os.ReadFile(file))(t), &manifest))
			c, _, err := storageos.Convert(manifest)
			check.OK(t, err)
			strict := metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict}
			check.Got(clusters().Create(t.Context(), c, strict))(t)
		})
	}
}
