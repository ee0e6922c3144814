package cluster_test

import (
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestServer_ThatIsNotAllowedGetsNoVolumesOfOthers(t *testing.T) {
	inBubble(t, func(w *world) {
		hosts := w.Servers(map[string]int64{inmemory.ServerA: 2 * gib, inmemory.ServerB: 400 * gib}, map[string]int64{"node-a": gib})
		check.Got(w.Backend.Create(w.Context(), inmemory.SharedSpec("before", mib, "team/b")))(w)
		check.Got(w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "s", Source: "before"}))(w)
		w.Allow("shop", "other")
		w.Until("the list", func() bool { _, err := w.Backend.SharedCapacity(w.Context(), "team/b", ""); return err != nil })
		const command = `kubectl patch storageclusters.holdfast.dev holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["shop","other","team"]}}}'`
		v, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("v", mib, ""))
		if err != nil || v.Server != "shop/a" {
			w.Fatalf("made %+v, %v", v, err)
		}
		if c, err := w.Backend.SharedCapacity(w.Context(), "", ""); err != nil || c.Total != 2*gib {
			w.Errorf("the capacity is %+v, %v", c, err)
		}
		inmemory.Refused(w.Backend.Create(w.Context(), inmemory.SharedSpec("w", mib, "team/b")))(w, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Restore(w.Context(), "s", inmemory.SharedSpec("restored", mib, ""))
		inmemory.Expect(w, err, backend.ErrUnavailable, "team/b", command)
		_, err = w.Backend.Clone(w.Context(), "before", inmemory.SharedSpec("cloned", mib, ""))
		inmemory.Expect(w, err, backend.ErrUnavailable, "team/b", command)
		if has := hosts[inmemory.ServerB].Volumes(); len(has) != 1 {
			w.Errorf("the server has %v", has)
		}
		// What it has is served on: it grows, is copied, and goes.
		if v, err := w.Backend.Expand(w.Context(), "before", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib {
			w.Errorf("it grew to %+v, %v", v, err)
		}
		check.Got(w.Backend.Snapshot(w.Context(), backend.SnapshotSpec{Name: "another", Source: "before"}))(w)
		check.Report(w, w.Backend.Delete(w.Context(), "before"))
		w.Allow("shop", "team")
		w.Until("a volume of the server that is allowed again", func() bool {
			v, err := w.Backend.Create(w.Context(), inmemory.SharedSpec("w", mib, "team/b"))
			return err == nil && v.Server == "team/b"
		})
	})
}

// What an agent has written is a copy only where the source is: its content may be anything.
func TestStranger_WhatAnotherNodeHasWrittenIsNoCopy(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{node: gib})
		w.takesNothing(node, stranger{w, w.Ours, "other"})
	})
}

func TestStranger_WhatTheTokenOfAnotherAgentWritesIsNoCopy(t *testing.T) {
	for name, kind := range realapi.Strangers {
		t.Run(name, func(t *testing.T) {
			w, home := realWorld(t), "home-"+rand.String(5)
			node, token := realapi.Stranger(t, w.Config, kind)
			w.Hosts(map[string]int64{home: gib})
			by := stranger{w, client.NewForConfigOrDie(token), node}
			w.takesNothing(home, by)
			if v1beta1.IsSite(node) { // a server reads claims, and so knows the names of new volumes
				by.volume("plain", nil)
				_, err := w.Backend.Create(t.Context(), inmemory.Spec("plain", mib))
				inmemory.Expect(t, err, backend.ErrExists, "plain is on "+v1beta1.SiteOf(node).String(), "is to be elsewhere")
			}
		})
	}
}

// takesNothing has another agent write an object under each name that a request is about to use: the request fails, and says where
// that object is.
func (w *world) takesNothing(home string, by stranger) {
	w.Helper()
	w.Puppet(by.node, gib)
	w.Agents[by.node] = func() {} // to be removed in the end
	w.Ready(by.node)
	ctx := w.Context()
	for _, name := range []string{"v", "w"} {
		check.Got(w.Backend.Create(ctx, inmemory.Spec(name, mib, home)))(w)
	}
	check.Got(w.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "v"}))(w)
	ofSnapshot := v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"}
	one, two := backend.GroupSpec{Name: "one", Sources: []backend.ID{"v"}}, backend.GroupSpec{Name: "two", Sources: []backend.ID{"v", "w"}}
	ofOne, ofTwo := check.Got(backend.IDFor(one.Member("v").Name))(w), check.Got(backend.IDFor(two.Member("w").Name))(w)
	for what, test := range map[string]struct {
		id      string
		forge   func(id string)
		request func() error
	}{
		"a volume that is restored": {
			"restored", func(name string) { by.volume(name, &ofSnapshot) },
			func() error { _, err := w.Backend.Restore(ctx, "s", inmemory.Spec("restored", mib)); return err },
		},
		"a volume that is cloned": {
			"cloned", func(name string) { by.volume(name, new(v1beta1.FromVolume("v"))) },
			func() error { _, err := w.Backend.Clone(ctx, "v", inmemory.Spec("cloned", mib)); return err },
		},
		"a snapshot": {
			"taken", func(id string) { by.snapshot(id, backend.SnapshotSpec{Name: "taken", Source: "v"}, nil) },
			func() error {
				_, err := w.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: "taken", Source: "v"})
				return err
			},
		},
		"the only member of a group": {
			string(ofOne), func(id string) {
				by.snapshot(id, one.Member("v"), &v1beta1.SnapshotGroup{Name: "one", Volumes: []string{"v"}})
			},
			func() error { _, err := w.Backend.SnapshotGroup(ctx, one); return err },
		},
		"one member of a group": {
			string(ofTwo), func(id string) {
				by.snapshot(id, two.Member("w"), &v1beta1.SnapshotGroup{Name: "two", Volumes: []string{"v", "w"}})
			},
			func() error { _, err := w.Backend.SnapshotGroup(ctx, two); return err },
		},
	} {
		test.forge(test.id)
		err := test.request()
		if !errors.Is(err, backend.ErrExists) {
			w.Errorf("%s: %v", what, err)
			continue
		}
		inmemory.Expect(w.T, err, backend.ErrExists, test.id+" is on "+v1beta1.SiteOf(by.node).String()+", ", "on node "+home, "look for who did")
	}
	check.Got(w.Backend.Restore(ctx, "s", inmemory.Spec("true", mib)))(w)
	w.keepsGroup(by)
}

// keepsGroup has another agent write a member of a group that is there. It is none, and keeps the group from nothing.
func (w *world) keepsGroup(by stranger) {
	w.Helper()
	ctx, spec := w.Context(), backend.GroupSpec{Name: "three", Sources: []backend.ID{"v", "w"}}
	made := check.Got(w.Backend.SnapshotGroup(ctx, spec))(w)
	for name, volumes := range map[string][]string{"another-list": {"a", "v", "w"}, "the-same-list": {"v", "w"}} {
		by.snapshot(name, backend.SnapshotSpec{Name: name, Source: "v"}, &v1beta1.SnapshotGroup{Name: "three", Volumes: volumes})
	}
	if again, err := w.Backend.SnapshotGroup(ctx, spec); err != nil || len(again.Snapshots) != len(made.Snapshots) {
		w.Errorf("the group is now %+v, %v", again, err)
	}
	for range 2 {
		check.Report(w.T, w.Backend.DeleteGroup(ctx, made.ID))
	}
	if _, err := w.Backend.GetGroup(ctx, made.ID); !errors.Is(err, backend.ErrNotFound) {
		w.Errorf("after it was deleted: %v", err)
	}
}

// stranger is the agent of another node or NFS server, which writes objects as if they were on its disk.
type stranger struct {
	*world
	as   client.Interface
	node string
}

func (s stranger) volume(name string, source *v1beta1.SourceReference) {
	s.Helper()
	o := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.AdoptedLabel: "true"}},
		Spec:       v1beta1.VolumeSpec{Name: name, Node: s.node, SourceRef: source},
	}
	o.Spec.Size.Required = v1beta1.Quantity(mib)
	made := check.Got(s.as.HoldfastV1beta1().Volumes().Create(s.Context(), o, metav1.CreateOptions{}))(s)
	inmemory.Made(made)
	made.Status.SourceRef, made.Status.ObservedGeneration = source, made.Generation
	check.Got(s.as.HoldfastV1beta1().Volumes().UpdateStatus(s.Context(), made, metav1.UpdateOptions{}))(s)
	isIt := func(o *v1beta1.Volume) bool { return o.Name == name && o.Status.CreationTime != nil }
	s.Until("the controller knowing it", func() bool { return slices.ContainsFunc(s.Backend.VolumesOn(s.node), isIt) })
}

func (s stranger) snapshot(id string, spec backend.SnapshotSpec, group *v1beta1.SnapshotGroup) {
	s.Helper()
	o := &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{v1beta1.AdoptedLabel: "true"}, Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec:       v1beta1.SnapshotSpec{Name: spec.Name, Node: s.node, SourceRef: v1beta1.FromVolume(string(spec.Source)), Group: group},
	}
	made := check.Got(s.as.HoldfastV1beta1().Snapshots().Create(s.Context(), o, metav1.CreateOptions{}))(s)
	made.Status.Phase, made.Status.Size, made.Status.Pool, made.Status.CreationTime = v1beta1.PhaseReady, v1beta1.Quantity(mib), "memory", new(metav1.NowMicro())
	check.Got(s.as.HoldfastV1beta1().Snapshots().UpdateStatus(s.Context(), made, metav1.UpdateOptions{}))(s)
	isIt := func(o *v1beta1.Snapshot) bool { return o.Name == id && o.Status.CreationTime != nil }
	s.Until("the controller knowing it", func() bool { return slices.ContainsFunc(s.Backend.SnapshotsOn(s.node), isIt) })
}
