package provisioner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestProvision_ServerThatRefusesCreatesNothing(t *testing.T) {
	s := newServer(t, quietClient())
	refusal := fmt.Errorf("%w: it is not allowed", backend.ErrUnavailable)
	s.config.Refusal = func() error { return refusal }
	p := s.made()
	o := options(nil)
	if pv, _, err := p.Provision(t.Context(), o); pv != nil || !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "it is not allowed") {
		t.Errorf("made %v, %v", pv, err)
	}
	if _, err := s.disk.Get(t.Context(), backend.ID(o.PVName)); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("there is a volume: %v", err)
	}
	refusal = nil
	if _, _, err := p.Provision(t.Context(), o); err != nil {
		t.Errorf("allowed later, it fails: %v", err)
	}
}

func TestProvision_VolumeFollowsTheClass(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	o := options(map[string]string{"gid": "1000", "squash": "all_squash", "inodes": "77", "onDelete": "retain"}, func(o *controller.ProvisionOptions) {
		policy := core.PersistentVolumeReclaimRetain
		o.StorageClass.ReclaimPolicy, o.StorageClass.MountOptions = &policy, []string{"nfsvers=4.1", "soft"}
		o.PVC.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteMany, core.ReadOnlyMany}
		o.PVC.Spec.Resources.Requests[core.ResourceStorage] = resource.MustParse("1000001")
	})
	pv, state, err := p.Provision(t.Context(), o)
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	if nfs := pv.Spec.NFS; nfs == nil || nfs.Server != address || nfs.Path != "/"+o.PVName || nfs.ReadOnly {
		t.Errorf("the source is %+v", pv.Spec.PersistentVolumeSource)
	}
	if size := pv.Spec.Capacity[core.ResourceStorage]; size.Value() != 1<<20 {
		t.Errorf("the size is %s, and not that of the volume as it was made", size.String())
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain || !slices.Equal(pv.Spec.MountOptions, []string{"nfsvers=4.1", "soft"}) ||
		!slices.Equal(pv.Spec.AccessModes, o.PVC.Spec.AccessModes) {
		t.Errorf("the class or the claim is not followed: %+v", pv.Spec)
	}
	if a := pv.Annotations; a[v1beta1.GIDAnnotation] != "1000" || a[v1beta1.NFSServerAnnotation] != "storage/main" || a[v1beta1.NFSVolumeAnnotation] != o.PVName || a[v1beta1.NFSStoreAnnotation] == "" || a[v1beta1.OnDeleteAnnotation] != "retain" {
		t.Errorf("the annotations are %v", a)
	}
	v, err := s.disk.Get(t.Context(), backend.ID(o.PVName))
	check.OK(t, err)
	want := map[string]string{
		v1beta1.NFSServerLabel: "storage/main", v1beta1.OnDeleteLabel: "retain", SquashLabel: "all_squash", v1beta1.GIDLabel: "1000", ClaimUIDLabel: string(o.PVC.UID),
		v1beta1.ClaimNamespaceLabel: "default", v1beta1.ClaimNameLabel: "data", v1beta1.PersistentVolumeLabel: o.PVName + ofMain,
	}
	for key, value := range want {
		if v.Labels[key] != value {
			t.Errorf("label %s is %q", key, v.Labels[key])
		}
	}
	if _, has := v.Labels[ModeLabel]; has {
		t.Error("the mode of a volume with a group is not left to the server")
	}
	if v.Inodes != 77 || v.Mode != backend.Filesystem || !Made(v) {
		t.Errorf("the volume is %+v", v)
	}
	if _, begun := p.journal.get(v.ID); !begun {
		t.Error("it is not in the journal, and has no PersistentVolume yet")
	}
}

func TestProvision_CreatedVolumesAreReported(t *testing.T) {
	s := newServer(t, quietClient())
	var made []string
	s.config.Made = func(kind backend.SourceKind, id backend.ID) { made = append(made, string(kind)+" "+string(id)) }
	p := s.made()
	o := options(nil)
	fails := errors.New("the server stumbles")
	s.disk.hook(func(_ context.Context, call string) error {
		if call == "create" {
			return fails
		}
		return nil
	})
	if _, _, err := p.Provision(t.Context(), o); !errors.Is(err, fails) || len(made) > 0 {
		t.Fatalf("a volume that could not be created was reported: %v, %v", made, err)
	}
	s.disk.hook(nil)
	pv := released(t, p, map[string]string{"onDelete": "archive"})
	check.OK(t, p.Delete(t.Context(), pv))
	id := string(volumeOf(pv))
	if want := []string{"volume " + id, "snapshot " + archivePrefix + id}; !slices.Equal(made, want) {
		t.Errorf("reported are %v, want %v", made, want)
	}
}

func TestProvision_ClassWithoutOptionsGetsThoseOfTheServer(t *testing.T) {
	s := newServer(t, quietClient())
	pv, _, err := s.made().Provision(t.Context(), options(nil))
	check.OK(t, err)
	if v := s.disk.volume(string(volumeOf(pv))); v.Labels[ModeLabel] != "2777" || v.Labels[v1beta1.GIDLabel] != "" || v.Labels[SquashLabel] != "" {
		t.Errorf("the labels are %v", v.Labels)
	}
	if !slices.Equal(pv.Spec.MountOptions, v1beta1.NFSMountOptions(nil)) || pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
		t.Errorf("it is %+v", pv.Spec)
	}
	if _, has := pv.Annotations[v1beta1.GIDAnnotation]; has {
		t.Errorf("it has a group that was not requested: %v", pv.Annotations)
	}
}

func TestProvision_ImpossibleClaimIsRefusedInPlainWords(t *testing.T) {
	block, group, class, grows := core.PersistentVolumeBlock, "snapshot.storage.k8s.io", "gold", true
	for name, test := range map[string]struct {
		change func(*controller.ProvisionOptions)
		says   string
	}{
		"selector": {func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"block":    {func(o *controller.ProvisionOptions) { o.PVC.Spec.VolumeMode = &block }, v1beta1.DriverName},
		"clone": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.DataSource = &core.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, v1beta1.DriverName},
		"snapshot": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.DataSourceRef = &core.TypedObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "x"}
		}, "VolumeSnapshot"},
		"one pod": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOncePod}
		}, "ReadWriteOncePod cannot be enforced"},
		"odd mode": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.AccessModes = []core.PersistentVolumeAccessMode{"Sometimes"}
		}, `"Sometimes"`},
		"attributes": {func(o *controller.ProvisionOptions) { o.PVC.Spec.VolumeAttributesClassName = &class }, "volumeAttributesClassName"},
		"no size":    {func(o *controller.ProvisionOptions) { o.PVC.Spec.Resources.Requests = nil }, "requests.storage is missing"},
		"negative size": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Requests[core.ResourceStorage] = resource.MustParse("-1Gi")
		}, "above 0"},
		"huge size": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Requests[core.ResourceStorage] = resource.MustParse("9223372036854775808")
		}, "9223372036854775807"},
		"huger size": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Requests[core.ResourceStorage] = resource.MustParse("1e40")
		}, "9223372036854775807"},
		"limit": {func(o *controller.ProvisionOptions) {
			o.PVC.Spec.Resources.Limits = core.ResourceList{core.ResourceStorage: resource.MustParse("1Mi")}
		}, "above limits.storage"},
		"topology": {func(o *controller.ProvisionOptions) {
			o.StorageClass.AllowedTopologies = []core.TopologySelectorTerm{{}}
		}, "allowedTopologies"},
		"growth":    {func(o *controller.ProvisionOptions) { o.StorageClass.AllowVolumeExpansion = &grows }, "cannot grow"},
		"old NFS":   {func(o *controller.ProvisionOptions) { o.StorageClass.MountOptions = []string{"hard,vers=3"} }, "4.1 and 4.2"},
		"parameter": {func(o *controller.ProvisionOptions) { o.StorageClass.Parameters = map[string]string{"gid": "0"} }, "StorageClass shared: invalid parameter gid"},
	} {
		s := newServer(t, quietClient())
		p := s.made()
		_, state, err := p.Provision(t.Context(), options(nil, test.change))
		if err == nil || !strings.Contains(err.Error(), test.says) || state != controller.ProvisioningFinished {
			t.Errorf("%s: %s, %v", name, state, err)
		}
		if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
			t.Errorf("%s: something was begun", name)
		}
	}
}

func TestProvision_ArchiveNeedsSnapshots(t *testing.T) {
	s := newServer(t, quietClient())
	s.config.Backend = struct{ backend.Backend }{backendtest.NewMemory()}
	_, state, err := s.made().Provision(t.Context(), options(map[string]string{"onDelete": "archive"}))
	if !errors.Is(err, backend.ErrInvalid) || state != controller.ProvisioningFinished || !strings.Contains(err.Error(), "retain") {
		t.Errorf("%s, %v", state, err)
	}
}

// The library forgets a claim that was deleted only when it learns that no operation runs.
func TestProvision_StateSaysWhetherTheVolumeMayStillAppear(t *testing.T) {
	for _, test := range []struct {
		err  error
		want controller.ProvisioningState
	}{
		{backend.ErrBusy, controller.ProvisioningInBackground},
		{context.DeadlineExceeded, controller.ProvisioningInBackground},
		{backend.ErrExhausted, controller.ProvisioningFinished},
		{backend.ErrInvalid, controller.ProvisioningFinished},
		{backend.ErrOutOfRange, controller.ProvisioningFinished},
		{backend.ErrUnavailable, controller.ProvisioningNoChange},
		{backend.ErrPrecondition, controller.ProvisioningNoChange},
		{errors.New("the disk sighs"), controller.ProvisioningNoChange},
	} {
		s := newServer(t, quietClient())
		s.disk.hook(func(context.Context, string) error { return test.err })
		if _, state, err := s.made().Provision(t.Context(), options(nil)); !errors.Is(err, test.err) || state != test.want {
			t.Errorf("%v: %s, %v", test.err, state, err)
		}
	}
}

func TestProvision_SlowVolumeIsRequestedAgainAndCreatedOnce(t *testing.T) {
	slow := &slowBackend{Memory: backendtest.NewMemory(), finish: make(chan struct{})}
	s := newServer(t, quietClient())
	s.config.Backend = slow
	p := s.made()
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, state, err := p.Provision(ctx, options(nil))
		cancel()
		if state != controller.ProvisioningInBackground || !errors.Is(err, backend.ErrBusy) {
			t.Fatalf("%s, %v", state, err)
		}
	}
	close(slow.finish)
	if pv, state, err := p.Provision(t.Context(), options(nil)); err != nil || state != controller.ProvisioningFinished || pv == nil {
		t.Errorf("%s, %v", state, err)
	}
	if slow.made != 1 {
		t.Errorf("it was made %d times", slow.made)
	}
}

// slowBackend makes volumes off the caller's path, as those on disks do, and finishes when it is released.
type slowBackend struct {
	*backendtest.Memory
	ops    backend.Operations
	finish chan struct{}
	made   int
}

func (b *slowBackend) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	id, err := backend.IDFor(spec.Name)
	if err != nil {
		return nil, err
	}
	return backend.Do(ctx, &b.ops, id, "create", func(ctx context.Context) (*backend.Volume, error) {
		if v, err := b.Get(ctx, id); err == nil {
			return v, v.Satisfies(spec, nil)
		}
		<-b.finish
		b.made++
		return b.Memory.Create(ctx, spec)
	})
}

func TestProvision_WithoutTheLeaseNothingIsDoneOrReported(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	p.gate.shut()
	if _, _, err := p.Provision(t.Context(), options(nil)); !isIgnored(err) {
		t.Errorf("provisioning: %v", err)
	}
	if err := p.Delete(t.Context(), &core.PersistentVolume{}); !isIgnored(err) {
		t.Errorf("deleting: %v", err)
	}
	if p.ShouldProvision(t.Context(), options(nil).PVC) || p.ShouldDelete(t.Context(), nil) || len(s.disk.calls) != 0 {
		t.Errorf("it works on: %v", s.disk.calls)
	}
}

func TestProvision_LostLeaseEndsTheCall(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
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
		if err := call(); !isIgnored(err) {
			t.Errorf("%s: %v", name, err)
		}
		p.gate.shut() // it returns: no call is left
	}
	if len(p.journal.all()) != 1 {
		t.Error("what was begun is forgotten")
	}
}

func TestProvision_PanicIsAnError(t *testing.T) {
	s := newServer(t, quietClient())
	s.disk.hook(func(context.Context, string) error { panic("secret detail") })
	p := s.made()
	_, state, err := p.Provision(t.Context(), options(nil))
	if !errors.Is(err, backend.ErrUnavailable) || state != controller.ProvisioningNoChange || strings.Contains(err.Error(), "secret") {
		t.Errorf("%s, %v", state, err)
	}
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{v1beta1.NFSServerAnnotation: "storage/main", v1beta1.NFSVolumeAnnotation: "pvc-1"}}}
	if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("deleting: %v", err)
	}
}

func TestProvision_ChangedClassIsFollowed(t *testing.T) {
	for name, after := range map[string]map[string]string{
		"other group":  {"gid": "6"},
		"other inodes": {"gid": "5", "inodes": "99"},
	} {
		s := newServer(t, quietClient())
		p := s.made()
		if _, _, err := p.Provision(t.Context(), options(map[string]string{"gid": "5"})); err != nil {
			t.Fatal(err)
		}
		if _, state, err := p.Provision(t.Context(), options(after)); !errors.Is(err, backend.ErrBusy) || state != controller.ProvisioningInBackground {
			t.Errorf("%s: %s, %v", name, state, err)
		}
		pv, _, err := p.Provision(t.Context(), options(after))
		if err != nil || pv.Annotations[v1beta1.GIDAnnotation] != after["gid"] {
			t.Errorf("%s: %v, %v", name, pv, err)
		}
	}
}

func TestProvision_VolumeWithAPersistentVolumeIsNotCreatedAgain(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv, _, err := p.Provision(t.Context(), options(map[string]string{"gid": "5"}))
	check.OK(t, err)
	s.disk.Write(volumeOf(pv), []byte("precious"))
	check.Got(s.config.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
	if _, _, err := p.Provision(t.Context(), options(map[string]string{"gid": "6"})); !errors.Is(err, backend.ErrExists) {
		t.Errorf("got %v", err)
	}
	if got := s.disk.Read(volumeOf(pv), 8); string(got) != "precious" {
		t.Errorf("the data is %q", got)
	}
}

func TestProvision_ForeignVolumeIsNotTaken(t *testing.T) {
	s := newServer(t, quietClient())
	o := options(nil)
	check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: o.PVName, Size: backend.Size{Required: gib}}))(t)
	if _, state, err := s.made().Provision(t.Context(), o); !errors.Is(err, backend.ErrExists) || state != controller.ProvisioningFinished {
		t.Errorf("%s, %v", state, err)
	}
	if len(s.disk.volumes()) != 1 {
		t.Error("it was removed")
	}
}

func TestProvision_PersistentVolumeThatCannotBeWrittenIsReported(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv, _, err := p.Provision(t.Context(), options(nil))
	check.OK(t, err)
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: "data"}
	p.saved(t.Context(), pv, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, pv.Name, errors.New("no rights")))
	if written := s.events.with("NotSaved"); len(written) != 1 || !strings.Contains(written[0], "no rights") {
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
	p := newServer(t, quietClient()).made()
	pv, _, err := p.Provision(t.Context(), options(nil))
	check.OK(t, err)
	p.working(t)
	p.saved(t.Context(), pv, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "persistentvolumes"}, pv.Name))
	wait.Until(t, "it ends, as neither it nor its claim is there", func() bool { return len(p.journal.all()) == 0 })
}

// What the watch has brought is newer than what the library knows of its own writing.
func TestProvision_EventsOfTheLibraryDoNotHideOurs(t *testing.T) {
	p := newServer(t, quietClient()).made()
	newer := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Status: core.PersistentVolumeStatus{Phase: core.VolumeReleased}}
	check.OK(t, p.volumes.GetIndexer().Add(newer))
	for _, write := range []func(any) error{p.volumes.GetStore().Add, p.volumes.GetStore().Update} {
		check.OK(t, write(&core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}))
		if o, _, err := p.volumes.GetStore().GetByKey("pvc-1"); err != nil || o != newer {
			t.Errorf("%v, %v", o, err)
		}
	}
}

func TestProvision_WithoutAnAddressCreatesNothing(t *testing.T) {
	for _, fails := range []error{nil, errors.New("no Service yet")} {
		s := newServer(t, quietClient())
		s.config.Address = func(context.Context) (string, error) { return "", fails }
		if _, state, err := s.made().Provision(t.Context(), options(nil)); !errors.Is(err, backend.ErrUnavailable) || state != controller.ProvisioningNoChange || len(s.disk.volumes()) != 0 {
			t.Errorf("%s, %v", state, err)
		}
	}
}

func TestProvision_MountOptionsOfTheServerExtendTheDefaults(t *testing.T) {
	for given, want := range map[string]string{
		"":                             "nfsvers=4.2 hard noresvport",
		"nconnect=4 noatime":           "nfsvers=4.2 hard noresvport nconnect=4 noatime",
		"soft vers=4.1":                "noresvport soft vers=4.1",
		"resvport hard minorversion=1": "resvport hard minorversion=1",
	} {
		s := newServer(t, quietClient())
		s.config.MountOptions = strings.Fields(given)
		pv, _, err := s.made().Provision(t.Context(), options(nil))
		check.OK(t, err)
		if got := strings.Join(pv.Spec.MountOptions, " "); got != want {
			t.Errorf("of %q it is %q, want %q", given, got, want)
		}
	}
}

func TestProvision_ClaimGetsAnEventOfAFullServerAndIsProvisionedLater(t *testing.T) {
	full := hostfs.New(t, hostfs.Ext4, 16<<20)
	s := newServer(t, quietClient())
	s.config.StateDir = filepath.Join(full, "state")
	p := s.made()
	fill := filepath.Join(full, "fill")
	f, err := os.Create(fill)
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
	if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 || p.countWaiting() != 1 {
		t.Errorf("begun are %v, volumes %v", p.journal.all(), s.disk.volumes())
	}
	check.OK(t, os.Remove(fill))
	if _, _, err := p.Provision(t.Context(), options(nil)); err != nil {
		t.Error(err)
	}
}
