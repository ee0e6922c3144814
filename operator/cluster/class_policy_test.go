package cluster

import (
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const reserved = parameters.Reserved

// classCase is a class with some parameters, and parts of the refusal. No parts: it is allowed.
type classCase struct {
	given map[string]string
	says  []string
}

var csiCases = map[string]classCase{
	"none":                 {nil, nil},
	"all":                  {map[string]string{"pool": "fast", reserved + "fstype": "xfs", "provisioning": "thick", "mkfsOptions": "-m crc=1 -i size=1024", "inodes": "1000", "onNodeLoss": "delete", "shared": "false"}, nil},
	"as in the API":        {map[string]string{"provisioning": "Thick", "onNodeLoss": "Delete"}, nil},
	"empty":                {map[string]string{"pool": "", reserved + "fstype": "", "provisioning": "", "inodes": "", "onNodeLoss": "", "shared": "", "nfsServer": ""}, nil},
	"of a server":          {map[string]string{"shared": "true", "nfsServer": "team/files"}, nil},
	"Kubernetes' own":      {map[string]string{reserved + "provisioner-secret-name": "x", reserved + "provisioner-secret-namespace": "y"}, nil},
	"a newer sidecar's":    {map[string]string{reserved + "of-next-year": "x"}, nil},
	"as many inodes":       {map[string]string{"inodes": "9223372036854775807"}, nil},
	"more inodes":          {map[string]string{"inodes": "9223372036854775808"}, []string{"inodes", "9223372036854775807"}},
	"no inodes":            {map[string]string{"inodes": "0"}, []string{"inodes=0", "from 1 to"}},
	"inodes in letters":    {map[string]string{"inodes": "many"}, []string{"inodes=many"}},
	"negative inodes":      {map[string]string{"inodes": "-1"}, []string{"inodes=-1"}},
	"far too many inodes":  {map[string]string{"inodes": strings.Repeat("9", 40)}, []string{"inodes="}},
	"an unknown key":       {map[string]string{"speed": "x"}, []string{"parameter speed is not known", "csi.storage.k8s.io/fstype, inodes, mkfsOptions, nfsServer"}},
	"fsType":               {map[string]string{"fsType": "xfs"}, []string{"parameter fsType", "use csi.storage.k8s.io/fstype"}},
	"fstype":               {map[string]string{"fstype": "xfs"}, []string{"use csi.storage.k8s.io/fstype"}},
	"type":                 {map[string]string{"type": "xfs"}, []string{"use csi.storage.k8s.io/fstype"}},
	"a key in capitals":    {map[string]string{"Pool": "fast"}, []string{"parameter Pool", "allowed are (case matters)"}},
	"a key in lower case":  {map[string]string{"mkfsoptions": "-m 1"}, []string{"did you mean mkfsOptions?"}},
	"Kubernetes' in case":  {map[string]string{reserved + "fsType": "xfs"}, []string{"did you mean csi.storage.k8s.io/fstype?"}},
	"another driver's":     {map[string]string{"gid": "5"}, []string{"nfs.holdfast.dev"}},
	"the old server":       {map[string]string{"shared": "true", "server": "team/files"}, []string{"did you mean nfsServer?"}},
	"mount options":        {map[string]string{"mountOptions": "noatime"}, []string{"field of the StorageClass"}},
	"a file system":        {map[string]string{reserved + "fstype": "ntfs"}, []string{"fstype=ntfs", "ext4, xfs or btrfs"}},
	"a file system twice":  {map[string]string{reserved + "fstype": "ext4\nxfs"}, []string{"docs/parameters.md"}}, // no message has lines
	"another value":        {map[string]string{"onNodeLoss": "keep"}, []string{"onNodeLoss=keep", "Retain or Delete"}},
	"a boolean":            {map[string]string{"shared": "yes"}, []string{"shared=yes", "true or false"}},
	"a pool":               {map[string]string{"pool": "../fast"}, []string{"pool=../fast", "the name of a pool"}},
	"a server's name":      {map[string]string{"shared": "true", "nfsServer": "files"}, []string{"nfsServer=files", "NAMESPACE/NAME"}},
	"a server, not shared": {map[string]string{"nfsServer": "team/files"}, []string{"nfsServer=team/files", "only for classes with shared=true"}},
	"a loss of a server":   {map[string]string{"shared": "true", "onNodeLoss": "retain"}, []string{"onNodeLoss=retain", "cannot be used with shared=true"}},
	"two faults":           {map[string]string{"speed": "x", "shared": "yes"}, []string{"speed", "shared=yes"}},
}

var plainCases = map[string]classCase{
	"none":                {nil, nil},
	"all":                 {map[string]string{"nfsServer": "team/files", "gid": "4294967294", "squash": "all_squash", "inodes": "5", "onDelete": "archive"}, nil},
	"in any case":         {map[string]string{"NFSSERVER": "files", "GID": "none", "rootsquash": "true", "ondelete": "retain"}, nil},
	"no group":            {map[string]string{"gid": "0"}, []string{"gid=0", "none or a whole number from 1 to 4294967294"}},
	"a group too high":    {map[string]string{"GID": "4294967295"}, []string{"GID=4294967295"}},
	"a value in capitals": {map[string]string{"rootSquash": "TRUE"}, []string{"true or false"}},
	"twice":               {map[string]string{"gid": "1", "GID": "1"}, []string{"case does not matter"}},
	"two squashes":        {map[string]string{"RootSquash": "false", "squash": "all_squash"}, []string{"squash=all_squash", "cannot be used with rootsquash"}},
	"a file system":       {map[string]string{reserved + "fstype": "xfs"}, []string{"the server chooses the file system"}},
	"a sidecar's":         {map[string]string{reserved + "provisioner-secret-name": "x"}, []string{"is not known"}},
	"the old server":      {map[string]string{"server": "team/files"}, []string{"did you mean nfsServer?"}},
	"another driver's":    {map[string]string{"onNodeLoss": "delete"}, []string{"csi.holdfast.dev"}},
}

var snapshotCases = map[string]classCase{
	"none":        {nil, nil},
	"a sidecar's": {map[string]string{reserved + "snapshotter-secret-name": "x", reserved + "of-next-year": "y"}, nil},
	"a pool":      {map[string]string{"pool": "fast"}, []string{"parameter pool is not known", "csi.storage.k8s.io/"}},
}

// class is one of a kind of Kubernetes or of snapshots, in a field of which is its driver.
func class(group, kind, field, driver string, given map[string]string) *unstructured.Unstructured {
	all := map[string]any{}
	for key, value := range given {
		all[key] = value
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": kind, "metadata": map[string]any{"name": "hb-parameters"}, field: driver, "parameters": all,
	}}
	if field == "driver" {
		o.Object["deletionPolicy"] = "Delete"
	}
	return o
}

func storageClass(provisioner string, given map[string]string) *unstructured.Unstructured {
	return class("storage.k8s.io", "StorageClass", "provisioner", provisioner, given)
}

// tryClass says what the API server would say of an object that is created.
func (a *asker) tryClass(o *unstructured.Unstructured) error {
	a.Helper()
	resource := schema.GroupVersionResource{Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version, Resource: strings.ToLower(o.GetKind()) + "es"}
	_, err := a.objects.Resource(resource).Create(a.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// agree compares what the API server says with what the driver's parser does.
func (a *asker) agree(c *parameters.Class, cases map[string]classCase, made func(given map[string]string) *unstructured.Unstructured) {
	a.Helper()
	for name, test := range cases {
		err := a.tryClass(made(test.given))
		_, parsed := c.Read(test.given)
		if refused := len(test.says) > 0; refused != (err != nil) || refused != (parsed != nil) {
			a.Errorf("%s, %s: the API server says %v, the driver %v", c.Name, name, err, parsed)
		}
		a.says(c.Name+", "+name, err, test.says...)
	}
}

// agreeOnSpecs sees that the API server refuses the same in a StorageCluster.
func (a *asker) agreeOnSpecs(cases map[string]classCase) {
	a.Helper()
	class := func(given map[string]string) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) {
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-one"}, {Name: "hb-two", Parameters: given}}
		}
	}
	wait.Until(a, "the rule being held", func() bool { return a.try(class(map[string]string{"speed": "x"})) != nil })
	for name, test := range cases {
		if _, has := test.given["pool"]; has || test.given[reserved+"fstype"] != "" || test.given["onNodeLoss"] != "" {
			continue // they have fields
		}
		err := a.try(class(test.given))
		if refused := len(test.says) > 0; refused != (err != nil) || refused && !strings.Contains(err.Error(), "spec.storageClasses: class hb-two: parameter ") {
			a.Errorf("%s: the API server says %v", name, err)
		}
	}
}

func TestParameters_WrongOnesAreRefusedWhereTheyAreWritten(t *testing.T) {
	r := newRig(t)
	classes := r.theirs.StorageV1().StorageClasses()
	older := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-older"}, Provisioner: "csi.holdfast.dev", Parameters: map[string]string{"speed": "x"}}
	wait.Until(r, "a class of before the rule", func() bool { // the API server may know that of a test before for a while
		_, err := classes.Create(t.Context(), older, metav1.CreateOptions{})
		return err == nil
	})
	t.Cleanup(func() { _ = classes.Delete(background, older.Name, metav1.DeleteOptions{}) })
	r.start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	a := r.asker().ruled()
	wait.Until(a, "the rule being held", func() bool {
		return a.tryClass(storageClass("csi.holdfast.dev", map[string]string{"speed": "x"})) != nil
	})

	a.agree(&parameters.CSI, csiCases, func(given map[string]string) *unstructured.Unstructured {
		return storageClass("csi.holdfast.dev", given)
	})
	a.agree(&parameters.Plain, plainCases, func(given map[string]string) *unstructured.Unstructured {
		return storageClass("nfs.holdfast.dev", given)
	})
	a.agreeOnSpecs(csiCases)
	if err := a.tryClass(storageClass("example.com", map[string]string{"speed": "x"})); err != nil {
		t.Errorf("a class of another driver is refused: %v", err)
	}
	if _, err := classes.Patch(t.Context(), older.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a class of before the rule cannot be changed: %v", err)
	}

	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	remade := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "hb-remade"}, Provisioner: older.Provisioner, Parameters: older.Parameters}
	operator := kubernetes.NewForConfigOrDie(r.as(controllerUser))
	if _, err := operator.StorageV1().StorageClasses().Create(t.Context(), remade, dryRun); err != nil {
		t.Errorf("the operator cannot recreate a class: %v", err)
	}

	a.snapshotKinds() // they come after the rule
	a.agreeOnSnapshots()
}

func (a *asker) agreeOnSnapshots() {
	a.Helper()
	wrong := map[string]string{"pool": "x"}
	for _, of := range []struct {
		class       *parameters.Class
		group, kind string
	}{
		{&parameters.Snapshot, "snapshot.storage.k8s.io", "VolumeSnapshotClass"},
		{&parameters.GroupSnapshot, "groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotClass"},
	} {
		ours := func(given map[string]string) *unstructured.Unstructured {
			return class(of.group, of.kind, "driver", "csi.holdfast.dev", given)
		}
		wait.Until(a, "the rule for "+of.kind, func() bool { return apierrors.IsInvalid(a.tryClass(ours(wrong))) })
		a.agree(of.class, snapshotCases, ours)
		if err := a.tryClass(class(of.group, of.kind, "driver", "example.com", wrong)); err != nil {
			a.Errorf("a %s of another driver is refused: %v", of.kind, err)
		}
	}
	// Only these can be changed: the kinds of the others do not allow it.
	snapshots := a.objects.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"})
	o := class("snapshot.storage.k8s.io", "VolumeSnapshotClass", "driver", "csi.holdfast.dev", nil)
	check.Got(snapshots.Create(a.Context(), o, metav1.CreateOptions{}))(a)
	_, err := snapshots.Patch(a.Context(), o.GetName(), types.MergePatchType, []byte(`{"parameters":{"pool":"x"}}`), metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "parameter pool is not known") {
		a.Errorf("a change to a wrong parameter: %v", err)
	}
}

// snapshotKinds adds the kinds of snapshots, and removes them after the test.
func (a *asker) snapshotKinds() {
	a.Helper()
	all := deploy.SnapshotDefinitions()
	definitions := a.objects.Resource(kube.Definitions)
	for _, d := range all {
		a.Cleanup(func() { _ = definitions.Delete(background, d.GetName(), metav1.DeleteOptions{}) })
		if _, err := definitions.Create(a.Context(), d, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			a.Fatal(err)
		}
	}
	for _, d := range all {
		wait.Until(a, d.GetName()+" being served", func() bool {
			now, err := definitions.Get(a.Context(), d.GetName(), metav1.GetOptions{})
			return err == nil && realapi.Established(now)
		})
	}
}
