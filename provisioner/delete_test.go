package provisioner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// released is a PersistentVolume whose claim is gone.
func released(t *testing.T, p *Provisioner, parameters map[string]string) *core.PersistentVolume {
	t.Helper()
	pv := p.provisioned(t, options(parameters))
	pv.UID = "of-" + options(nil).PVC.UID
	pv.Annotations[v1beta1.ProvisionedByAnnotation] = p.Name
	pv.Status.Phase = core.VolumeReleased
	return pv
}

func annotate(key, value string) func(*server, *Provisioner, *core.PersistentVolume) {
	return func(_ *server, _ *Provisioner, pv *core.PersistentVolume) { pv.Annotations[key] = value }
}

// since is a PersistentVolume of another server that was released so long ago.
func since(ago time.Duration) func(*server, *Provisioner, *core.PersistentVolume) {
	return func(_ *server, p *Provisioner, pv *core.PersistentVolume) {
		pv.Annotations[v1beta1.NFSServerAnnotation] = "storage/other"
		pv.Status.LastPhaseTransitionTime = new(metav1.NewTime(time.Now().Add(-ago)))
		p.Patience = time.Hour
	}
}

func TestDelete_FollowsTheVolumeAndLeavesWhatIsNotItsOwn(t *testing.T) {
	type volume = core.PersistentVolume
	const mine, other, nothing = v1beta1.NFSVolumeAnnotation, "of-the-other-door", "nothing is deleted"
	id := options(nil).PVName
	kept := "storage/main as volume " + id + ", exported as /" + id
	const leftAlone = "LeftAlone: it was created by NFS server "
	for name, test := range map[string]struct {
		onDelete string
		change   func(*server, *Provisioner, *volume)
		left     int // volumes
		err      error
		says     string // in the error, or in the one event of it
	}{
		"as it was made": {"", func(*server, *Provisioner, *volume) {}, 0, nil, ""},
		// As earlier releases and adoptions name it.
		"named as its volume": {"", func(_ *server, _ *Provisioner, v *volume) { v.Name = string(volumeOf(v)) }, 0, nil, ""},
		"of a claim that is gone": {"", func(_ *server, _ *Provisioner, v *volume) {
			v.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: "data", UID: "before"}
		}, 0, nil, ""},
		"of a living claim": {"", func(_ *server, p *Provisioner, v *volume) {
			c := options(nil).PVC
			c.Spec.VolumeName = v.Name
			v.Spec.ClaimRef = &core.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
			check.Got(p.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}))(t)
		}, 1, backend.ErrPrecondition, "default/data"},
		"of a volume whose labels are lost": {"", func(s *server, p *Provisioner, _ *volume) { p.Backend = damaged{s.disk} }, 0, nil, ""},
		"retained":                          {"retain", func(*server, *Provisioner, *volume) {}, 1, nil, kept},
		// The label decides, since who may edit a PersistentVolume need not be who made the class.
		"retained, and edited": {"retain", annotate(v1beta1.OnDeleteAnnotation, "delete"), 1, nil, "Retained"},
		"archived, damaged": {"archive", func(s *server, p *Provisioner, v *volume) {
			check.Got(s.disk.Snapshot(t.Context(), backend.SnapshotSpec{Name: archivePrefix + string(volumeOf(v)), Source: volumeOf(v)}))(t)
			p.Backend = damaged{s.disk}
		}, 1, backend.ErrPrecondition, "holdfast snapshots delete " + archivePrefix},

		"of another server": {"", annotate(v1beta1.NFSServerAnnotation, "storage/other"), 1, errIgnored, leftAlone + "storage/other"},
		"of no server":      {"", annotate(v1beta1.NFSServerAnnotation, ""), 1, errIgnored, leftAlone + "(unknown)"},
		"of lost data": {"", func(_ *server, _ *Provisioner, v *volume) {
			v.Name, v.Annotations[mine], v.Annotations[v1beta1.NFSStoreAnnotation] = "pvc-lost", "pvc-lost", "before"
		}, 1, errIgnored, "with other data (before)"},
		// While the other server is about to delete it, there is nothing to report.
		"of another server, just released": {"", since(0), 1, errIgnored, ""},
		"of another server, left since":    {"", since(time.Hour), 1, errIgnored, "LeftAlone"},
		"that meets a bug": {"", func(s *server, _ *Provisioner, _ *volume) {
			s.disk.hook(func(context.Context, string) error { panic("secret") })
		}, 1, backend.ErrUnavailable, "because of a bug in the program"},
		"without the Lease": {"", func(_ *server, p *Provisioner, _ *volume) { p.gate.shut() }, 1, errIgnored, ""},

		"forged: of another name": {"", func(_ *server, _ *Provisioner, v *volume) { v.Name = "forged" }, 1, backend.ErrInvalid, nothing},
		"forged: of no volume":    {"", annotate(mine, ""), 1, backend.ErrInvalid, nothing},
		"forged: of a path":       {"", annotate(mine, "../"+id), 1, backend.ErrInvalid, nothing},
		"forged: of a volume of CSI": {"", func(s *server, _ *Provisioner, v *volume) {
			check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: other}))(t)
			v.Name, v.Annotations[mine] = other, other
		}, 2, backend.ErrPrecondition, nothing},
	} {
		s, p := quiet(t)
		pv := released(t, p, map[string]string{"onDelete": test.onDelete})
		test.change(s, p, pv)
		var err error
		for range 3 {
			if err = p.Delete(t.Context(), pv); !isA(err, test.err) {
				t.Errorf("%s: it answers %v, want %v", name, err, test.err)
			}
		}
		said := s.events.With("")
		if err != nil && !isA(err, errIgnored) {
			said = append(said, err.Error())
		}
		if (len(said) == 1) != (test.says != "") || len(said) > 1 || !strings.Contains(strings.Join(said, "\n"), test.says) {
			t.Errorf("%s: it says %q, want %q", name, said, test.says)
		}
		if left := s.disk.volumes(); len(left) != test.left {
			t.Errorf("%s: left are %v", name, left)
		}
		if begun := p.journal.all(); test.err == nil && len(begun) != 0 {
			t.Errorf("%s: %v is in the journal, and would be removed", name, begun)
		}
	}
}

// damaged has lost what it knew of its volumes, and the content of its snapshots.
type damaged struct{ *disk }

func (d damaged) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	if _, err := d.disk.Get(ctx, id); err != nil {
		return nil, err
	}
	return &backend.Volume{ID: id, Condition: backend.Condition{Abnormal: true, Message: "its metadata cannot be read"}}, nil
}

func (d damaged) GetSnapshot(ctx context.Context, id backend.ID) (*backend.Snapshot, error) {
	s, err := d.disk.GetSnapshot(ctx, id)
	if s != nil {
		s.Condition = backend.Condition{Abnormal: true, Message: "its content is missing"}
	}
	return s, err
}

// An administrator wrote a second PersistentVolume for the export, or for a directory in it.
func TestDelete_AVolumeOfALivingClaimByAnotherPersistentVolumeIsRefusedByName(t *testing.T) {
	type (
		volume = core.PersistentVolume
		claim  = core.PersistentVolumeClaim
	)
	for name, test := range map[string]struct {
		change  func(*volume, *claim)
		refused bool
	}{
		"of the export":           {func(*volume, *claim) {}, true},
		"of a directory in it":    {func(v *volume, _ *claim) { v.Spec.NFS.Path += "/logs" }, true},
		"by another address":      {func(v *volume, _ *claim) { v.Spec.NFS.Server = "nfs.example" }, true},
		"about to be bound":       {func(v *volume, c *claim) { v.Spec.ClaimRef.UID, c.Spec.VolumeName = "", "" }, true},
		"of another export":       {func(v *volume, _ *claim) { v.Spec.NFS.Path += "0" }, false},
		"of a claim that is gone": {func(v *volume, _ *claim) { v.Spec.ClaimRef.UID = "before" }, false},
		"that its claim left":     {func(_ *volume, c *claim) { c.Spec.VolumeName = "another" }, false},
		"without a claim":         {func(v *volume, _ *claim) { v.Spec.ClaimRef = nil }, false},
	} {
		s, p := quiet(t)
		pv := released(t, p, nil)
		c := options(nil).PVC
		c.Name, c.UID, c.Spec.VolumeName = "second", "second-uid", "by-hand"
		v := &volume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: core.PersistentVolumeSpec{
			PersistentVolumeSource: *pv.Spec.PersistentVolumeSource.DeepCopy(),
			ClaimRef:               &core.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		}}
		test.change(v, c)
		check.Got(p.Client.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}))(t)
		check.Got(p.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}))(t)
		err := p.Delete(t.Context(), pv)
		if kept := len(s.disk.volumes()) == 1; kept != test.refused || (err != nil) != test.refused {
			t.Errorf("%s: kept is %v, %v", name, kept, err)
		}
		const says = "default/second too, by PersistentVolume by-hand"
		if err != nil && (!errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: it answers %v", name, err)
		}
	}
}

func TestDelete_ObjectsOfAVolumeGoBeforeAndAfterIt(t *testing.T) {
	var forgotten []backend.ID
	s, p := quiet(t, func(s *server) {
		s.config.Forget = func(_ context.Context, id backend.ID) error {
			forgotten = append(forgotten, id, backend.ID(strings.Join(s.disk.volumes(), " ")))
			return nil
		}
	})
	pv := released(t, p, nil)
	for range 2 { // as after a removal that was interrupted when the volume had gone
		check.OK(t, p.Delete(t.Context(), pv))
	}
	if id := volumeOf(pv); !slices.Equal(forgotten, []backend.ID{id, id, id, "", id, "", id, ""}) {
		t.Errorf("forgotten, with the volumes that there were, are %q; left are %v", forgotten, s.disk.volumes())
	}
}

func TestDelete_ArchivedDataIsASnapshotAndNoExport(t *testing.T) {
	var made []string
	s, p := quiet(t, func(s *server) {
		s.config.Made = func(kind backend.SourceKind, id backend.ID) { made = append(made, string(kind)+" "+string(id)) }
	})
	pv := released(t, p, map[string]string{"onDelete": "archive"})
	s.disk.Write(volumeOf(pv), []byte("precious"))
	fails := errors.New("the server stumbles")
	for _, at := range []string{"get", "snapshot", "delete", "deleted"} {
		s.disk.fails(at, fails)
		if err := p.Delete(t.Context(), pv); !errors.Is(err, fails) {
			t.Fatalf("at %s: %v", at, err)
		}
	}
	s.disk.hook(nil)
	check.OK(t, p.Delete(t.Context(), pv))
	id := archivePrefix + string(volumeOf(pv))
	s.archived(t, 0, id, "precious")
	if written := s.events.With("Archived"); len(written) != 1 || !strings.Contains(written[0], id) {
		t.Errorf("the events are %v", written)
	}
	if made = slices.Compact(made); !slices.Equal(made, []string{"volume " + string(volumeOf(pv)), "snapshot " + id}) {
		t.Errorf("reported as made are %v", made)
	}
}

// archived fails unless no volume is left, and the snapshot that is the last of so many has some content.
func (s *server) archived(t *testing.T, before int, id, content string) {
	t.Helper()
	snapshots, err := s.disk.ListSnapshots(t.Context())
	if err != nil || len(snapshots) != before+1 || len(s.disk.volumes()) != 0 || !strings.HasPrefix(string(snapshots[before].ID), id) {
		t.Fatalf("snapshots %v, volumes %v, %v", snapshots, s.disk.volumes(), err)
	}
	check.Got(s.disk.Restore(t.Context(), snapshots[before].ID, backend.VolumeSpec{Name: "back"}))(t)
	if got := s.disk.Read("back", len(content)); string(got) != content {
		t.Errorf("the data is %q", got)
	}
}

// The volume came back from the trash after it was archived, and was written to since.
func TestDelete_ArchiveOfAnEarlierLifeIsNotTakenForThatOfThisRelease(t *testing.T) {
	after := metav1.NewTime(time.Now().Add(time.Hour))
	for name, release := range map[string]*metav1.Time{"a release with a time": &after, "one without": nil} {
		t.Run(name, func(t *testing.T) {
			s, p := quiet(t)
			pv := released(t, p, map[string]string{"onDelete": "archive"})
			pv.Status.LastPhaseTransitionTime = release
			id := archivePrefix + string(volumeOf(pv))
			s.disk.Write(volumeOf(pv), []byte("old"))
			check.Got(s.disk.Snapshot(t.Context(), backend.SnapshotSpec{Name: id, Source: volumeOf(pv)}))(t)
			s.disk.Write(volumeOf(pv), []byte("new"))
			p = s.elsewhere()
			s.disk.fails("delete", backend.ErrBusy)
			for range 2 {
				if err := p.Delete(t.Context(), pv); !errors.Is(err, backend.ErrBusy) {
					t.Fatal(err)
				}
			}
			s.disk.hook(nil)
			if release != nil { // the next process finds what the one before has taken
				p = s.elsewhere()
			}
			check.OK(t, p.Delete(t.Context(), pv))
			s.archived(t, 1, id, "new")
		})
	}
}

// elsewhere is another process of the server, which has lost the identity of its data.
func (s *server) elsewhere() *Provisioner {
	s.t.Helper()
	s.config.StateDir = s.t.TempDir()
	return s.made()
}

func TestDelete_OnlyClaimsThatDidNotFitAreTriedAgainAndOnce(t *testing.T) {
	s, p := quiet(t)
	s.disk.Memory = backendtest.NewMemorySized(gib)
	var again []string
	p.claims.listener = cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { again = append(again, o.(*core.PersistentVolumeClaim).Name) }}
	claimed := func(name string) controller.ProvisionOptions {
		o := options(nil, func(o *controller.ProvisionOptions) {
			o.PVC.Name, o.PVC.UID, o.PVName = name, types.UID(name), "pvc-"+name
		})
		check.OK(t, p.claims.SharedIndexInformer.GetStore().Add(o.PVC))
		return o
	}
	refused := func(name string, want error) {
		t.Helper()
		if _, _, err := p.Provision(t.Context(), claimed(name)); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pv := p.provisioned(t, claimed("first"))
	refused("no-room", backend.ErrExhausted)
	s.disk.fails("create", backend.ErrUnavailable)
	refused("no-answer", backend.ErrUnavailable)
	s.disk.hook(nil)
	check.OK(t, p.Delete(t.Context(), pv))
	check.OK(t, p.Delete(t.Context(), p.provisioned(t, claimed("last"))))
	if !slices.Equal(again, []string{"no-room"}) {
		t.Errorf("tried again are %q", again)
	}
}

func TestDelete_LocalDataIsDeletedThoughTheIdentityOfTheStoreIsLost(t *testing.T) {
	s, p := quiet(t)
	pv := released(t, p, nil)
	again := s.elsewhere()
	if again.journal.store == p.journal.store {
		t.Fatal("two stores have one identity")
	}
	if err := again.Delete(t.Context(), pv); err != nil || len(s.disk.volumes()) != 0 {
		t.Errorf("volumes %v, %v", s.disk.volumes(), err)
	}
}
