package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestProvision_VolumeFollowsTheClass(t *testing.T) {
	s, p := quiet(t)
	parameters := map[string]string{"gid": "1000", "squash": "all_squash", "inodes": "77", "onDelete": "retain"}
	o := options(parameters, func(o *controller.ProvisionOptions) {
		o.StorageClass.ReclaimPolicy, o.StorageClass.MountOptions = new(core.PersistentVolumeReclaimRetain), []string{"nfsvers=4.1", "soft"}
		o.PVC.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany}
		o.PVC.Spec.Resources.Requests = size("1000001")
	})
	pv := p.provisioned(t, o)
	want := core.PersistentVolumeSpec{
		Capacity:                      size("1Mi"), // that of the volume as it was made
		AccessModes:                   o.PVC.Spec.AccessModes,
		PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
		MountOptions:                  []string{"nfsvers=4.1", "soft"},
		VolumeMode:                    new(core.PersistentVolumeFilesystem),
		PersistentVolumeSource:        core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: address, Path: "/" + o.PVName}},
	}
	if !equality.Semantic.DeepEqual(pv.Spec, want) {
		t.Errorf("it is %+v", pv.Spec)
	}
	if annotations := map[string]string{
		v1beta1.GIDAnnotation: "1000", v1beta1.NFSServerAnnotation: "storage/main", v1beta1.NFSVolumeAnnotation: o.PVName,
		v1beta1.NFSStoreAnnotation: p.journal.store, v1beta1.OnDeleteAnnotation: "retain",
	}; !maps.Equal(pv.Annotations, annotations) || p.journal.store == "" {
		t.Errorf("the annotations are %v", pv.Annotations)
	}
	v := s.disk.volume(o.PVName)
	if labels := map[string]string{ // without a mode, which a volume with a group leaves to the server
		v1beta1.NFSServerLabel: "storage/main", v1beta1.OnDeleteLabel: "retain", SquashLabel: "all_squash", v1beta1.GIDLabel: "1000",
		ClaimUIDLabel: string(o.PVC.UID), v1beta1.ClaimNamespaceLabel: "default", v1beta1.ClaimNameLabel: "data",
		v1beta1.PersistentVolumeLabel: o.PVName + ofMain,
	}; !maps.Equal(v.Labels, labels) || v.Inodes != 77 || v.Mode != backend.Filesystem || !Made(v) {
		t.Errorf("the volume is %+v", v)
	}
	if _, begun := p.journal.get(v.ID); !begun {
		t.Error("it is not in the journal, and has no PersistentVolume yet")
	}
}

func TestProvision_ClassWithoutOptionsGetsThoseOfTheServer(t *testing.T) {
	for given, want := range map[string]string{
		"":                             "nfsvers=4.2 hard noresvport",
		"nconnect=4 noatime":           "nfsvers=4.2 hard noresvport nconnect=4 noatime",
		"soft vers=4.1":                "noresvport soft vers=4.1",
		"resvport hard minorversion=1": "resvport hard minorversion=1",
	} {
		s, p := quiet(t, func(s *server) { s.config.MountOptions = strings.Fields(given) })
		pv := p.provisioned(t, options(nil))
		policy := pv.Spec.PersistentVolumeReclaimPolicy
		if got := strings.Join(pv.Spec.MountOptions, " "); got != want || policy != core.PersistentVolumeReclaimDelete {
			t.Errorf("of %q it is %q, want %q, and the policy is %s", given, got, want, policy)
		}
		labels, group := s.disk.volume(string(volumeOf(pv))).Labels, v1beta1.GIDLabel
		if _, has := pv.Annotations[v1beta1.GIDAnnotation]; has || labels[ModeLabel] != "2777" || labels[group]+labels[SquashLabel] != "" {
			t.Errorf("it has a group or a squash that was not requested: %v, %v", pv.Annotations, labels)
		}
	}
}

func TestProvision_ImpossibleClaimIsRefusedInPlainWords(t *testing.T) {
	type (
		spec  = core.PersistentVolumeClaimSpec
		class = storage.StorageClass
		mode  = core.PersistentVolumeAccessMode
	)
	for name, test := range map[string]struct {
		change func(*spec, *class)
		says   string
	}{
		"selector":      {func(c *spec, _ *class) { c.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"block":         {func(c *spec, _ *class) { c.VolumeMode = new(core.PersistentVolumeBlock) }, v1beta1.DriverName},
		"clone":         {func(c *spec, _ *class) { c.DataSource = &core.TypedLocalObjectReference{Kind: "X"} }, v1beta1.DriverName},
		"snapshot":      {func(c *spec, _ *class) { c.DataSourceRef = &core.TypedObjectReference{Kind: "VolumeSnapshot"} }, "VolumeSnapshot"},
		"one pod":       {func(c *spec, _ *class) { c.AccessModes = []mode{core.ReadWriteOncePod} }, "ReadWriteOncePod cannot be enforced"},
		"attributes":    {func(c *spec, _ *class) { c.VolumeAttributesClassName = new("gold") }, "volumeAttributesClassName"},
		"no size":       {func(c *spec, _ *class) { c.Resources.Requests = nil }, "requests.storage is missing"},
		"negative size": {func(c *spec, _ *class) { c.Resources.Requests = size("-1Gi") }, "above 0"},
		"huge size":     {func(c *spec, _ *class) { c.Resources.Requests = size("9223372036854775808") }, "9223372036854775807"},
		"huger size":    {func(c *spec, _ *class) { c.Resources.Requests = size("1e40") }, "9223372036854775807"},
		"limit":         {func(c *spec, _ *class) { c.Resources.Limits = size("1Mi") }, "above limits.storage"},
		"topology":      {func(_ *spec, c *class) { c.AllowedTopologies = []core.TopologySelectorTerm{{}} }, "allowedTopologies"},
		"growth":        {func(_ *spec, c *class) { c.AllowVolumeExpansion = new(true) }, "cannot grow"},
		"old NFS":       {func(_ *spec, c *class) { c.MountOptions = []string{"hard,vers=3"} }, "4.1 and 4.2"},
		"parameter":     {func(_ *spec, c *class) { c.Parameters = map[string]string{"gid": "0"} }, "StorageClass shared: invalid parameter gid"},
	} {
		s, p := quiet(t)
		o := options(nil)
		test.change(&o.PVC.Spec, o.StorageClass)
		_, state, err := p.Provision(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), test.says) || state != controller.ProvisioningFinished {
			t.Errorf("%s: %s, %v", name, state, err)
		}
		if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
			t.Errorf("%s: something was begun", name)
		}
	}
}

func size(n string) core.ResourceList {
	return core.ResourceList{core.ResourceStorage: resource.MustParse(n)}
}

// The library forgets a claim that was deleted only when it learns that no operation runs.
func TestProvision_StateSaysWhetherTheVolumeMayStillAppear(t *testing.T) {
	const (
		background = controller.ProvisioningInBackground
		finished   = controller.ProvisioningFinished
		unchanged  = controller.ProvisioningNoChange
	)
	sighs := errors.New("the disk sighs")
	disk := func(err error) func(*server) {
		return func(s *server) { s.disk.hook(func(context.Context, string) error { return err }) }
	}
	for name, test := range map[string]struct {
		change func(*server)
		err    error
		state  controller.ProvisioningState
		says   string
	}{
		"it takes long":        {disk(backend.ErrBusy), backend.ErrBusy, background, ""},
		"the time is over":     {disk(context.DeadlineExceeded), context.DeadlineExceeded, background, ""},
		"there is no room":     {disk(backend.ErrExhausted), backend.ErrExhausted, finished, ""},
		"it is refused":        {disk(backend.ErrInvalid), backend.ErrInvalid, finished, ""},
		"it is too large":      {disk(backend.ErrOutOfRange), backend.ErrOutOfRange, finished, ""},
		"the server is away":   {disk(backend.ErrUnavailable), backend.ErrUnavailable, unchanged, ""},
		"the server is broken": {disk(backend.ErrPrecondition), backend.ErrPrecondition, unchanged, ""},
		"nothing is known":     {disk(sighs), sighs, unchanged, ""},
		"a bug": {func(s *server) {
			s.disk.hook(func(context.Context, string) error { panic("secret detail") })
		}, backend.ErrUnavailable, unchanged, "because of a bug in the program"},
		"another's volume": {func(s *server) {
			check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: options(nil).PVName, Size: backend.Size{Required: gib}}))(t)
		}, backend.ErrExists, finished, ""},
		"no address":         {func(s *server) { s.config.Address = "" }, backend.ErrUnavailable, unchanged, "no address yet"},
		"the server may not": {func(s *server) { s.config.Servers = servers{refusal: func() error { return sighs }} }, sighs, unchanged, ""},
	} {
		s, p := quiet(t, test.change, func(s *server) {
			s.config.Made = func(backend.SourceKind, backend.ID) { t.Errorf("%s: a volume is reported as made", name) }
		})
		before := s.disk.volumes()
		pv, state, err := p.Provision(t.Context(), options(map[string]string{"onDelete": "archive"}))
		if pv != nil || !errors.Is(err, test.err) || state != test.state {
			t.Errorf("%s: %v, %s, %v", name, pv, state, err)
		}
		if said := fmt.Sprint(err); !strings.Contains(said, test.says) || strings.Contains(said, "secret") {
			t.Errorf("%s: it says %q", name, said)
		}
		if left := s.disk.volumes(); !slices.Equal(left, before) {
			t.Errorf("%s: left are %v", name, left)
		}
	}
}

func TestProvision_WithoutTheLeaseNothingIsDoneOrReported(t *testing.T) {
	s, p := quiet(t)
	p.gate.shut()
	if _, _, err := p.Provision(t.Context(), options(nil)); !isA(err, errIgnored) {
		t.Errorf("provisioning: %v", err)
	}
	if p.ShouldProvision(t.Context(), options(nil).PVC) || p.ShouldDelete(t.Context(), nil) || len(s.disk.calls) != 0 {
		t.Errorf("it works on: %v", s.disk.calls)
	}
}

func TestProvision_LostLeaseEndsTheCall(t *testing.T) {
	s, p := quiet(t)
	pv := released(t, p, nil)
	for name, call := range map[string]func() error{
		"provisioning": func() error { _, _, err := p.Provision(t.Context(), options(nil)); return err },
		"deleting":     func() error { return p.Delete(t.Context(), pv) },
	} {
		term, lose := context.WithCancel(t.Context())
		p.gate.open(term)
		s.disk.hook(func(ctx context.Context, _ string) error {
			lose()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return errors.New("it goes on without the Lease")
			}
		})
		if err := call(); !isA(err, errIgnored) {
			t.Errorf("%s: %v", name, err)
		}
		p.gate.shut() // it returns: no call is left
	}
	if len(p.journal.all()) != 1 {
		t.Error("what was begun is forgotten")
	}
}

// Of an earlier release the PersistentVolume has another name.
func TestProvision_VolumeIsMadeAgainAsItsClassIsNowUnlessItIsInUse(t *testing.T) {
	five := map[string]string{"gid": "5"}
	for name, test := range map[string]struct {
		after      map[string]string // the parameters of the class
		old, inUse bool              // of an earlier release, with its PersistentVolume
	}{
		"with another group":                      {map[string]string{"gid": "6"}, false, false},
		"with other inodes":                       {map[string]string{"gid": "5", "inodes": "99"}, false, false},
		"in use":                                  {map[string]string{"gid": "6"}, false, true},
		"begun by an earlier release":             {five, true, false},
		"in use, made by an earlier release":      {five, true, true},
		"in use, of an earlier class and release": {map[string]string{"gid": "6"}, true, true},
	} {
		s, p := quiet(t)
		pv := p.provisioned(t, options(five))
		id := volumeOf(pv)
		if test.old {
			v := s.disk.volume(string(id))
			v.Labels[v1beta1.PersistentVolumeLabel], pv.Name = v.Name, v.Name
			check.OK(t, s.disk.Delete(t.Context(), id))
			spec := backend.VolumeSpec{Name: v.Name, Size: backend.Size{Required: v.Size}, Mode: v.Mode, Labels: v.Labels}
			check.Got(s.disk.Create(t.Context(), spec))(t)
		}
		s.disk.Write(id, []byte("precious"))
		wrong, state := backend.ErrBusy, controller.ProvisioningInBackground
		if test.inUse {
			check.Got(p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
			wrong, state = backend.ErrExists, controller.ProvisioningFinished
		}
		if _, got, err := p.Provision(t.Context(), options(test.after)); !errors.Is(err, wrong) || got != state {
			t.Errorf("%s: at first %s, %v", name, got, err)
		}
		again, _, err := p.Provision(t.Context(), options(test.after))
		if test.inUse {
			if got := s.disk.Read(id, 8); string(got) != "precious" || !errors.Is(err, backend.ErrExists) {
				t.Errorf("%s: the data is %q, %v", name, got, err)
			}
			continue
		}
		if err != nil || again.Annotations[v1beta1.GIDAnnotation] != test.after["gid"] || again.Name != string(id)+ofMain ||
			s.disk.volume(string(id)).Labels[v1beta1.PersistentVolumeLabel] != again.Name {
			t.Errorf("%s: it is not made again: %v, %v", name, again, err)
		}
	}
}

func TestProvision_PersistentVolumeThatCannotBeWrittenIsReported(t *testing.T) {
	s, p := quiet(t)
	pv := p.provisioned(t, options(nil))
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: "data"}
	p.saved(t.Context(), pv, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, pv.Name, errors.New("no rights")))
	if written := s.events.With("NotSaved"); len(written) != 1 || !strings.Contains(written[0], "no rights") {
		t.Errorf("the events are %v", written)
	}
	if len(p.journal.all()) != 1 {
		t.Error("it was taken out of the journal")
	}
	p.saved(t.Context(), pv, nil)
	if len(p.journal.all()) != 0 {
		t.Error("it is written, and still in the journal")
	}
}

func TestProvision_ExistingPersistentVolumeIsCompared(t *testing.T) {
	_, p := quiet(t)
	pv := p.provisioned(t, options(nil))
	p.working(t)
	p.saved(t.Context(), pv, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "persistentvolumes"}, pv.Name))
	wait.Until(t, "it ends, as neither it nor its claim is there", func() bool { return len(p.journal.all()) == 0 })
}

// What the watch has brought is newer than what the library knows of its own writing.
func TestProvision_EventsOfTheLibraryDoNotHideOurs(t *testing.T) {
	_, p := quiet(t)
	named := metav1.ObjectMeta{Name: "pvc-1"}
	newer := &core.PersistentVolume{ObjectMeta: named, Status: core.PersistentVolumeStatus{Phase: core.VolumeReleased}}
	check.OK(t, p.volumes.GetIndexer().Add(newer))
	for _, write := range []func(any) error{p.volumes.GetStore().Add, p.volumes.GetStore().Update} {
		check.OK(t, write(&core.PersistentVolume{ObjectMeta: named}))
		if o, _, err := p.volumes.GetStore().GetByKey("pvc-1"); err != nil || o != newer {
			t.Errorf("%v, %v", o, err)
		}
	}
}

func TestProvision_ClaimGetsAnEventOfAFullServerAndIsProvisionedLater(t *testing.T) {
	full := hostfs.New(t, hostfs.Ext4, 16<<20)
	s, p := quiet(t, func(s *server) { s.config.StateDir = filepath.Join(full, "state") })
	f, err := os.Create(filepath.Join(full, "fill"))
	check.OK(t, err)
	for _, size := range []int{1 << 20, 1 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	f.Close()
	_, state, err := p.Provision(t.Context(), options(nil))
	if !errors.Is(err, backend.ErrExhausted) || state != controller.ProvisioningFinished || !strings.Contains(err.Error(), "is full") {
		t.Errorf("%s, %v", state, err)
	}
	if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("begun are %v, volumes %v", p.journal.all(), s.disk.volumes())
	}
	check.OK(t, os.Remove(f.Name()))
	p.provisioned(t, options(nil))
}

// The packages know nothing of each other, and mean the same.
func TestLabels_WrittenAreReadByTheExports(t *testing.T) {
	for ours, theirs := range map[string]string{SquashLabel: export.LabelSquash, v1beta1.GIDLabel: export.LabelGID, ModeLabel: export.LabelMode} {
		if ours != theirs {
			t.Errorf("%s is written, %s is read", ours, theirs)
		}
	}
}
