package provisioner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// released is a PersistentVolume whose claim is gone.
func released(t *testing.T, p *Provisioner, parameters map[string]string) *core.PersistentVolume {
	t.Helper()
	pv, _, err := p.Provision(t.Context(), options(parameters))
	check.OK(t, err)
	pv.UID = "of-" + options(nil).PVC.UID
	pv.Annotations[v1beta1.ProvisionedByAnnotation] = p.Name
	pv.Status.Phase = core.VolumeReleased
	return pv
}

func isIgnored(err error) bool {
	_, is := err.(*controller.IgnoredError) //nolint:errorlint // as the library looks at it
	return is
}

func TestDelete_DeletedVolumeIsGoneAndCanBeDeletedAgain(t *testing.T) {
	s := newServer(t, quietClient())
	var forgotten []backend.ID
	s.config.Forget = func(_ context.Context, id backend.ID) error { forgotten = append(forgotten, id); return nil }
	p := s.made()
	pv := released(t, p, nil)
	for range 2 {
		check.OK(t, p.Delete(t.Context(), pv))
	}
	if left := s.disk.volumes(); len(left) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("left are %v, %v", left, p.journal.all())
	}
	if len(forgotten) != 4 || forgotten[0] != volumeOf(pv) {
		t.Errorf("forgotten: %v", forgotten)
	}
}

func TestDelete_AVolumeOfALivingClaimIsRefusedByName(t *testing.T) {
	client := quietClient()
	s := newServer(t, client)
	p := s.made()
	pv := released(t, p, nil)
	claim := options(nil).PVC.DeepCopy()
	claim.Spec.VolumeName = pv.Name
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	claims := client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	check.Got(claims.Create(t.Context(), claim, metav1.CreateOptions{}))(t)
	if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "default/data") {
		t.Errorf("it answers %v", err)
	}
	if len(s.disk.volumes()) != 1 {
		t.Error("the data is gone")
	}
	check.OK(t, claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("after the claim: %v, %v", err, s.disk.volumes())
	}
}

// An administrator wrote a second PersistentVolume for the export, or for a directory in it.
func TestDelete_AVolumeOfALivingClaimByAnotherPersistentVolumeIsRefusedByName(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*core.PersistentVolume, *core.PersistentVolumeClaim)
		refused bool
	}{
		"of the export":        {func(*core.PersistentVolume, *core.PersistentVolumeClaim) {}, true},
		"of a directory in it": {func(v *core.PersistentVolume, _ *core.PersistentVolumeClaim) { v.Spec.NFS.Path += "/logs" }, true},
		"by another address":   {func(v *core.PersistentVolume, _ *core.PersistentVolumeClaim) { v.Spec.NFS.Server = "nfs.example" }, true},
		"about to be bound": {func(v *core.PersistentVolume, c *core.PersistentVolumeClaim) {
			v.Spec.ClaimRef.UID, c.Spec.VolumeName = "", ""
		}, true},
		"of another export":       {func(v *core.PersistentVolume, _ *core.PersistentVolumeClaim) { v.Spec.NFS.Path += "0" }, false},
		"of a claim that is gone": {func(v *core.PersistentVolume, _ *core.PersistentVolumeClaim) { v.Spec.ClaimRef.UID = "before" }, false},
		"that its claim left":     {func(_ *core.PersistentVolume, c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "another" }, false},
		"without a claim":         {func(v *core.PersistentVolume, _ *core.PersistentVolumeClaim) { v.Spec.ClaimRef = nil }, false},
	} {
		client := quietClient()
		s := newServer(t, client)
		p := s.made()
		pv := released(t, p, nil)
		claim := options(nil).PVC.DeepCopy()
		claim.Name, claim.UID, claim.Spec.VolumeName = "second", "second-uid", "by-hand"
		other := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: core.PersistentVolumeSpec{
			PersistentVolumeSource: *pv.Spec.PersistentVolumeSource.DeepCopy(),
			ClaimRef:               &core.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		}}
		test.change(other, claim)
		check.Got(client.CoreV1().PersistentVolumes().Create(t.Context(), other, metav1.CreateOptions{}))(t)
		check.Got(client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(t.Context(), claim, metav1.CreateOptions{}))(t)
		err := p.Delete(t.Context(), pv)
		if kept := len(s.disk.volumes()) == 1; kept != test.refused {
			t.Errorf("%s: kept is %v, %v", name, kept, err)
		}
		if test.refused && (!errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "default/second") || !strings.Contains(err.Error(), "by-hand")) || !test.refused && err != nil {
			t.Errorf("%s: it answers %v", name, err)
		}
	}
}

func TestDelete_PersistentVolumeWithTheNameOfItsVolumeIsDeletedToo(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	pv.Name = string(volumeOf(pv)) // as earlier releases and adoptions name it
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("left are %v: %v", s.disk.volumes(), err)
	}
}

func TestDelete_RetainedDataStaysAndIsReported(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "retain"})
	s.disk.Write(volumeOf(pv), []byte("precious"))
	for range 2 {
		check.OK(t, p.Delete(t.Context(), pv))
	}
	if got := s.disk.Read(volumeOf(pv), 8); string(got) != "precious" {
		t.Errorf("the data is %q", got)
	}
	if written := s.events.with("Retained"); len(written) != 1 || !strings.Contains(written[0], "/"+string(volumeOf(pv))) || !strings.Contains(written[0], "storage/main") {
		t.Errorf("the events are %v", written)
	}
	if len(p.journal.all()) != 0 {
		t.Error("it is in the journal, and would be removed")
	}
}

func TestDelete_ArchivedDataIsASnapshotAndNoExport(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "archive"})
	s.disk.Write(volumeOf(pv), []byte("precious"))
	fails := errors.New("the server stumbles")
	for _, at := range []string{"snapshot", "delete", "deleted"} {
		s.disk.hook(func(_ context.Context, call string) error {
			if call == at {
				return fails
			}
			return nil
		})
		if err := p.Delete(t.Context(), pv); !errors.Is(err, fails) {
			t.Fatalf("at %s: %v", at, err)
		}
	}
	s.disk.hook(nil)
	check.OK(t, p.Delete(t.Context(), pv))
	snapshots, err := s.disk.ListSnapshots(t.Context())
	if err != nil || len(snapshots) != 1 || len(s.disk.volumes()) != 0 {
		t.Fatalf("snapshots %v, volumes %v, %v", snapshots, s.disk.volumes(), err)
	}
	check.Got(s.disk.Restore(t.Context(), snapshots[0].ID, backend.VolumeSpec{Name: "back"}))(t)
	if got := s.disk.Read("back", 8); string(got) != "precious" {
		t.Errorf("the data is %q", got)
	}
	if written := s.events.with("Archived"); len(written) != 1 || !strings.Contains(written[0], string(snapshots[0].ID)) {
		t.Errorf("the events are %v", written)
	}
}

// The volume came back from the trash after it was archived, and was written to since.
func TestDelete_ArchiveOfAnEarlierLifeIsNotTakenForThatOfThisRelease(t *testing.T) {
	after := metav1.NewTime(time.Now().Add(time.Hour))
	for name, release := range map[string]*metav1.Time{"a release with a time": &after, "one without": nil} {
		s := newServer(t, quietClient())
		pv := released(t, s.made(), map[string]string{"onDelete": "archive"})
		pv.Status.LastPhaseTransitionTime = release
		s.disk.Write(volumeOf(pv), []byte("old"))
		check.Got(s.disk.Snapshot(t.Context(), backend.SnapshotSpec{Name: archivePrefix + string(volumeOf(pv)), Source: volumeOf(pv)}))(t)
		s.disk.Write(volumeOf(pv), []byte("new"))
		s.config.StateDir = t.TempDir()
		p := s.made()
		s.disk.hook(func(_ context.Context, call string) error {
			if call == "delete" {
				return backend.ErrBusy
			}
			return nil
		})
		for range 2 {
			if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrBusy) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		s.disk.hook(nil)
		if release != nil { // the next process finds what the one before has taken
			s.config.StateDir = t.TempDir()
			p = s.made()
		}
		if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
			t.Fatalf("%s: volumes %v, %v", name, s.disk.volumes(), err)
		}
		snapshots, err := s.disk.ListSnapshots(t.Context())
		if err != nil || len(snapshots) != 2 {
			t.Fatalf("%s: snapshots %v, %v", name, snapshots, err)
		}
		check.Got(s.disk.Restore(t.Context(), snapshots[1].ID, backend.VolumeSpec{Name: "back"}))(t)
		if got := s.disk.Read("back", 3); string(got) != "new" {
			t.Errorf("%s: archived is %q", name, got)
		}
	}
}

func TestDelete_DamagedArchiveIsNotTakenForOne(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "archive"})
	check.Got(s.disk.Snapshot(t.Context(), backend.SnapshotSpec{Name: archivePrefix + string(volumeOf(pv)), Source: volumeOf(pv)}))(t)
	p.Backend = damagedArchive{s.disk}
	if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "snapshots delete "+archivePrefix+string(volumeOf(pv))) {
		t.Errorf("it answers %v", err)
	}
	if len(s.disk.volumes()) != 1 {
		t.Error("the data is gone")
	}
}

// damagedArchive has lost the content of its snapshots.
type damagedArchive struct{ *disk }

func (d damagedArchive) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	return broken(d.disk.GetSnapshot(ctx, id))
}

func (d damagedArchive) Snapshot(ctx context.Context, spec backend.SnapshotSpec) (*backend.Snapshot, error) {
	return broken(d.disk.Snapshot(ctx, spec))
}

func broken(s *backend.Snapshot, err error) (*backend.Snapshot, error) {
	if s != nil {
		s.Condition = backend.Condition{Abnormal: true, Message: "its content is missing"}
	}
	return s, err
}

// The label decides, since who may edit a PersistentVolume need not be who made the class.
func TestDelete_PolicyOfTheDataIsReadFromTheVolume(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, map[string]string{"onDelete": "retain"})
	pv.Annotations[v1beta1.OnDeleteAnnotation] = "delete"
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 1 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

func TestDelete_PersistentVolumeOfAnotherServerIsLeftAloneAndReportedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*core.PersistentVolume)
		says   string
	}{
		"of another server": {func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSServerAnnotation] = "storage/other" }, "storage/other"},
		"without an owner": {func(v *core.PersistentVolume) {
			v.Annotations = map[string]string{v1beta1.ProvisionedByAnnotation: v.Annotations[v1beta1.ProvisionedByAnnotation]}
		}, "unknown"},
		"of lost data": {func(v *core.PersistentVolume) {
			v.Name, v.Annotations[v1beta1.NFSVolumeAnnotation], v.Annotations[v1beta1.NFSStoreAnnotation] = "pvc-lost", "pvc-lost", "before"
		}, "before"},
	} {
		s := newServer(t, quietClient())
		p := s.made()
		pv := released(t, p, nil)
		test.change(pv)
		for range 3 {
			if err := p.Delete(t.Context(), pv); !isIgnored(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if written := s.events.with("LeftAlone"); len(written) != 1 || !strings.Contains(written[0], test.says) {
			t.Errorf("%s: the events are %v", name, written)
		}
		if len(s.disk.volumes()) != 1 {
			t.Errorf("%s: the volume is gone", name)
		}
	}
}

// While the other server is about to delete it, there is nothing to report.
func TestDelete_OtherServerIsGivenTime(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	pv.Annotations[v1beta1.NFSServerAnnotation] = "storage/other"
	now := metav1.Now()
	pv.Status.LastPhaseTransitionTime = &now
	if err := p.Delete(t.Context(), pv); !isIgnored(err) || len(s.events.with("LeftAlone")) != 0 {
		t.Errorf("%v, the events are %v", err, s.events.with(""))
	}
	long := metav1.NewTime(now.Add(-p.Patience))
	pv.Status.LastPhaseTransitionTime = &long
	if err := p.Delete(t.Context(), pv); !isIgnored(err) || len(s.events.with("LeftAlone")) != 1 {
		t.Errorf("%v, the events are %v", err, s.events.with(""))
	}
}

func TestDelete_LocalDataIsDeletedThoughTheIdentityOfTheStoreIsLost(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	s.config.StateDir = t.TempDir()
	again := s.made()
	if again.journal.store == p.journal.store {
		t.Fatal("two stores have one identity")
	}
	if err := again.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

func TestDelete_ForgedPersistentVolumeDeletesNothing(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: "of-the-other-door"}))(t)
	for name, change := range map[string]func(*core.PersistentVolume){
		"names another volume": func(v *core.PersistentVolume) { v.Name = "forged" },
		"names none":           func(v *core.PersistentVolume) { delete(v.Annotations, v1beta1.NFSVolumeAnnotation) },
		"names a path":         func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSVolumeAnnotation] = "../" + v.Name },
		"takes the name of a CSI": func(v *core.PersistentVolume) {
			v.Name, v.Annotations[v1beta1.NFSVolumeAnnotation] = "of-the-other-door", "of-the-other-door"
		},
	} {
		forged := pv.DeepCopy()
		change(forged)
		if err := p.Delete(t.Context(), forged); err == nil || isIgnored(err) || !strings.Contains(err.Error(), "nothing is deleted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := s.disk.volumes(); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}

func TestDelete_DamagedVolumeIsDeletedByItsPersistentVolume(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	pv := released(t, p, nil)
	p.Backend = damaged{s.disk}
	if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}

// damaged has lost what it knew of its volumes.
type damaged struct{ *disk }

func (d damaged) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if _, err := d.disk.Get(ctx, id); err != nil {
		return nil, err
	}
	return &backend.Volume{ID: id, Condition: backend.Condition{Abnormal: true, Message: "its metadata cannot be read"}}, nil
}

func TestDelete_FailureIsRetried(t *testing.T) {
	for _, at := range []string{"get", "delete", "deleted"} {
		s := newServer(t, quietClient())
		p := s.made()
		pv := released(t, p, nil)
		s.disk.hook(func(_ context.Context, call string) error {
			if call == at {
				return backend.ErrBusy
			}
			return nil
		})
		if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("at %s: %v", at, err)
		}
		s.disk.hook(nil)
		if err := p.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
			t.Errorf("at %s: volumes %v, %v", at, s.disk.volumes(), err)
		}
	}
}

func TestDelete_MemoryOfReportsIsBounded(t *testing.T) {
	var seen onceOnly
	for i := range 3 * mostTold {
		seen.first(time.Duration(i).String())
	}
	if len(seen.seen) > mostTold {
		t.Errorf("%d are remembered", len(seen.seen))
	}
}
