package agent

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// stored puts a volume on the disk without an object.
func (r *rig) stored(spec backend.VolumeSpec) *backend.Volume {
	r.Helper()
	spec.Size.Required = 16 * mib
	return check.Got(r.host.Memory.Create(r.Context(), spec))(r)
}

func (r *rig) onDisk(name string) *backend.Volume {
	r.Helper()
	return check.Got(r.host.Memory.Get(r.Context(), backend.ID(name)))(r)
}

func (r *rig) adopted(name string) *v1beta1.Volume {
	r.Helper()
	v := r.phase(name, v1beta1.PhaseReady)
	if v.Labels[v1beta1.AdoptedLabel] != "true" || !slices.Contains(v.Finalizers, v1beta1.AgentFinalizer) || v.Spec.Node != node {
		r.Errorf("adopted as %+v", v.ObjectMeta)
	}
	return v
}

func TestAdopt_DataWithoutAnObjectGetsOne(t *testing.T) {
	inBubble(t, func(r *rig) {
		odd := r.stored(backend.VolumeSpec{
			Name: "Odd Name", Mode: backend.Block, Provisioning: backend.Thick, Inodes: 7,
			Labels: map[string]string{"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"},
		})
		check.Got(r.host.Memory.Snapshot(r.Context(), backend.SnapshotSpec{Name: "s", Source: odd.ID}))(r)
		check.Got(r.host.Clone(r.Context(), odd.ID, backend.VolumeSpec{Name: "copy"}))(r)
		r.stored(backend.VolumeSpec{Name: "damaged"})
		r.host.ill["damaged"] = backend.Condition{Abnormal: true, Message: "meta.json is damaged"}
		r.begin()
		v := r.adopted(string(odd.ID))
		if v.Spec.Name != "Odd Name" || v.Spec.ClaimRef.String() != "shop/data" || v.Spec.Mode != v1beta1.ModeBlock || v.Spec.Provisioning != v1beta1.Thick ||
			v.Spec.Inodes != 7 || v.Spec.Size.Required.Value() != 16*mib || !v.Status.CreationTime.Time.Equal(odd.Created.Truncate(1000)) {
			r.Errorf("adopted as %+v", v)
		}
		r.expectEvent("Adopted")
		if c := r.adopted("copy"); c.Spec.SourceRef == nil || c.Spec.SourceRef.Name != string(odd.ID) {
			r.Errorf("the copy was adopted with source %+v", c.Spec.SourceRef)
		}
		if s := r.readySnapshot("s"); s.Labels[v1beta1.AdoptedLabel] != "true" || s.Spec.SourceRef.Name != string(odd.ID) {
			r.Errorf("the snapshot was adopted as %+v", s)
		}
		v = r.adopted("damaged")
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonDamaged)
		c := expectCondition(r, v.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonDamaged)
		if c.Message != "meta.json is damaged" {
			r.Errorf("it says %q", c.Message)
		}
		r.stored(backend.VolumeSpec{Name: "later"})
		r.adopted("later")
		r.remove("later")
		r.gone("later")
		if r.host.has("later") {
			r.Error("an adopted volume was not deleted")
		}
	})
}

func TestAdopt_DataCreatedByAnotherFrontEndGetsItsObjectAtOnceWithoutAnEvent(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin()
		r.agent.Made(backend.SourceVolume, "none") // it is removed by now
		v := r.stored(backend.VolumeSpec{Name: "a"})
		r.agent.Made(backend.SourceVolume, v.ID)
		r.adopted("a")
		check.Got(r.host.Memory.Snapshot(r.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(r)
		r.agent.Made(backend.SourceSnapshot, "s")
		r.readySnapshot("s")
		r.agent.Made(backend.SourceVolume, v.ID) // which has its object
		wait.Until(r, "the reports of new data to be handled", func() bool {
			none := true
			r.agent.work.made.Range(func(any, any) bool { none = false; return false })
			return none
		})
		if len(r.events.Events) > 0 {
			r.Errorf("there is the event %q", <-r.events.Events)
		}
		r.stored(backend.VolumeSpec{Name: "b"})
		r.restart() // which finds it
		r.expectEvent("Adopted")
	})
}

func TestAdopt_VolumeWithoutAllOfItsContentStaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.stored(backend.VolumeSpec{Name: "a", Incomplete: true})
		r.begin()
		v := r.phase("a", v1beta1.PhaseFailed)
		if !v.IsIncomplete() || v.Spec.PopulatedBy != "" {
			r.Errorf("it is %+v", v)
		}
		r.restart()
		r.grow("a", 32*mib)
		wait.Until(r, "the larger volume", func() bool { return v1beta1.Bytes(r.volume("a").Status.Size) == 32*mib })
		if v = r.volume("a"); !v.IsIncomplete() || !r.onDisk("a").Incomplete {
			r.Errorf("after a growth it is %+v", v.Status)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonIncomplete)
		back := r.pull()
		if v = r.phase("a", v1beta1.PhaseUnreachable); !v.IsIncomplete() {
			r.Errorf("out of reach it is %+v", v.Status)
		}
		back()
		r.phase("a", v1beta1.PhaseFailed)
		r.remove("a")
		r.gone("a")
	})
}

func TestAdopt_GroupIsAdoptedWholeAndDeletedWhole(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.stored(backend.VolumeSpec{Name: "a"})
		r.stored(backend.VolumeSpec{Name: "b"})
		g := check.Got(r.host.Memory.SnapshotGroup(r.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"a", "b"}}))(r)
		r.begin()
		for _, m := range g.Snapshots {
			s := r.readySnapshot(string(m.ID))
			if s.Spec.Group == nil || s.Spec.Group.Name != "g" || !slices.Equal(s.Spec.Group.Volumes, []string{"a", "b"}) || s.Status.Group != "g" {
				r.Errorf("adopted as %+v", s)
			}
			r.removeSnapshot(s.Name)
		}
		for _, m := range g.Snapshots {
			wait.Until(r, "the end of a member", func() bool { return r.snapshot(string(m.ID)) == nil })
		}
		if _, err := r.host.GetGroup(r.Context(), "g"); err == nil {
			r.Error("the group is still on the disk")
		}
	})
}

func TestAdopt_VolumeOfAPodOrWithAnObjectOnAnotherNodeIsLeftAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.Foreign = func(v *backend.Volume) bool { return v.Labels["ephemeral"] == "true" } }
		r.stored(backend.VolumeSpec{Name: "pod", Labels: map[string]string{"ephemeral": "true"}})
		r.thrown("deleted-pod", map[string]string{"ephemeral": "true"})
		r.thrown("deleted", nil)
		r.stored(backend.VolumeSpec{Name: "a"})
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Node = "node-b" }) // the disk was moved from there, perhaps
		r.stored(backend.VolumeSpec{Name: "z"})
		r.begin()
		r.adopted("z")
		if v := r.volume("a"); v.Spec.Node != "node-b" || v.Status.Phase != "" || !r.host.has("a") {
			r.Errorf("the object is %+v, on disk: %t", v, r.host.has("a"))
		}
		if v := r.volume("pod"); v != nil {
			r.Errorf("that of a pod got an object: %+v", v)
		}
		wait.Until(r, "it to be counted, and that there are no more", func() bool {
			s := r.node().Status
			return len(s.Trash) > 0 && s.InlineVolumes != nil && *s.InlineVolumes == 1 && s.InlineVolumesAllowed != nil && !*s.InlineVolumesAllowed
		})
		if all := r.node().Status.Trash; len(all) != 1 || all[0].Name != "deleted" {
			r.Errorf("the trash is reported as %+v", all)
		}
	})
}
