package api_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// What each field refuses, test/suite/schema tests with the API server's validation as a library. Of each sort of rule one
// is broken here, and what that library does not look at: the names of objects, and lists in which nothing is twice.
func TestRules_OfEachSortOneIsBroken(t *testing.T) {
	needServer(t)
	cluster := withPool(cephPool())
	cluster.Spec.Pools[0].Ceph.Pool = ""
	for field, err := range map[string]error{
		"spec.node":               createVolume(t, func(v *v1beta1.Volume) { v.Spec.Node = strings.Repeat("n", 254) }),
		"spec.pool":               createVolume(t, func(v *v1beta1.Volume) { v.Spec.Pool = "../fast" }),
		"spec.mode":               createVolume(t, func(v *v1beta1.Volume) { v.Spec.Mode = "filesystem" }),
		"spec.populatedBy":        createVolume(t, func(v *v1beta1.Volume) { v.Spec.SourceRef = nil }),
		"spec.size.required":      createVolume(t, func(v *v1beta1.Volume) { v.Spec.Size = v1beta1.VolumeSize{Required: amount("-1")} }),
		"spec.labels":             createVolume(t, manyLabels),
		"spec.group.volumes":      createSnapshot(t, func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"b", "c"} }),
		"spec.group.volumes[1]":   createSnapshot(t, func(s *v1beta1.Snapshot) { s.Spec.Group.Volumes = []string{"a", "a"} }),
		"spec":                    createServer(t, func(s *v1beta1.NFSServer) { s.Spec.Storage = nil }),
		"spec.exports.clients[1]": createServer(t, func(s *v1beta1.NFSServer) { s.Spec.Exports.Clients = []string{"10.0.0.1", "*"} }),
		"spec.gracePeriod":        createServer(t, func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("1.5s")) }),
		"spec.pools[0].ceph.pool": createCluster(t, cluster),
	} {
		t.Run(field, func(t *testing.T) { mustRefuse(t, err, field) })
	}
	for _, err := range []error{
		createSnapshot(t, func(s *v1beta1.Snapshot) { s.Name = "a.b" }), createServer(t, func(s *v1beta1.NFSServer) { s.Name = "a.b" }),
		createServer(t, func(s *v1beta1.NFSServer) { s.Name = strings.Repeat("a", 49) }),
	} {
		mustRefuse(t, err, "metadata.name")
	}
	check.Report(t, createServer(t, func(s *v1beta1.NFSServer) { s.Name = strings.Repeat("a", 48) }))
}

func manyLabels(v *v1beta1.Volume) {
	for i := range 64 {
		v.Spec.Labels[strconv.Itoa(i)] = ""
	}
}
