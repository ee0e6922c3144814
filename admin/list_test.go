package admin

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestVolumes_AreListedByNameWithWhatIsNotWell(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.volume("pvc-b", func(v *v1beta1.Volume) {
			v.Status.Phase = v1beta1.PhaseUnreachable
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNotMounted, Message: "pool fast of node a\nis not mounted"}}
		})
		created := metav1.NewMicroTime(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC))
		r.volume("pvc-a", func(v *v1beta1.Volume) {
			v.Spec.Name, v.Status.Mode, v.Status.FSType, v.Status.CreationTime = "a\tname", v1beta1.ModeFilesystem, "xfs", &created
		})
		r.volume("pvc-c", func(v *v1beta1.Volume) {
			*v = v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-c"}, Spec: v1beta1.VolumeSpec{Name: "c", Node: "b"}}
			v.Status.Error = &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "no room"}
		})
		rows := check.Got(r.Volumes(r.Context()))(r)
		var out strings.Builder
		r.must(WriteVolumes(&out, rows, false))
		want := "NAME   CLAIM        NODE  POOL  SIZE  USED   PHASE        CONDITION\n" +
			"pvc-a  shop/orders  a     fast  1Gi   256Mi  Ready        ok\n" +
			"pvc-b  shop/orders  a     fast  1Gi   256Mi  Unreachable  NotMounted: pool fast of node a is not mounted\n" +
			"pvc-c  -            b     -     0     0      Pending      Exhausted: no room\n"
		if out.String() != want {
			r.Errorf("got\n%swant\n%s", &out, want)
		}
		out.Reset()
		r.must(WriteVolumes(&out, []Row{rows[0], rows[2]}, true))
		want = "NAME   CLAIM        NODE  POOL  SIZE  USED   PHASE    CONDITION           MODE        FS   CREATED            CSI NAME\n" +
			"pvc-a  shop/orders  a     fast  1Gi   256Mi  Ready    ok                  Filesystem  xfs  2026-11-24 12:00Z  \"a\\tname\"\n" +
			"pvc-c  -            b     -     0     0      Pending  Exhausted: no room  -           -    -                  \"c\"\n"
		if out.String() != want {
			r.Errorf("got\n%swant\n%s", &out, want)
		}
	})
}

func TestSnapshots_AreListedWithTheirVolume(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.volume("v")
		r.snapshot("s")
		r.snapshot("t", func(s *v1beta1.Snapshot) { s.Spec.SourceRef = v1beta1.FromVolume("gone") })
		rows := check.Got(r.Snapshots(r.Context()))(r)
		var out strings.Builder
		r.must(WriteSnapshots(&out, rows, false))
		if want := "s     v       a     fast  1Gi   0     Ready  ok\nt     gone    a     fast  1Gi   0     Ready  ok\n"; !strings.HasSuffix(out.String(), want) {
			r.Errorf("got\n%swant\n%s", &out, want)
		}
		if rows[0].ClaimRef.String() != "shop/orders" || rows[1].ClaimRef != nil {
			r.Errorf("their claims are %v and %v", rows[0].ClaimRef, rows[1].ClaimRef)
		}
	})
}

func TestTrash_IsThatOfAllNodesTheLastDeletedFirst(t *testing.T) {
	inBubble(t, func(r *rig) {
		noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
		part := inTrash("pvc-1", "shop/orders", noon)
		part.Incomplete = true
		r.node("a", part)
		r.node("b")
		r.node("shared.main.nfs.holdfast.dev", inTrash("pvc-2", "", noon.Add(time.Hour)))
		var out strings.Builder
		all := check.Got(r.Trash(r.Context()))(r)
		TrashOrders[0].Sort(all, false)
		r.must(WriteTrash(&out, all, false))
		want := "NAME   CLAIM        NODE                          POOL  SIZE  DELETED            EXPIRES            CONDITION\n" +
			"pvc-2  -            shared.main.nfs.holdfast.dev  fast  1Gi   2026-11-24 13:00Z  2026-11-25 13:00Z  -\n" +
			"pvc-1  shop/orders  a                             fast  1Gi   2026-11-24 12:00Z  2026-11-25 12:00Z  incomplete\n"
		if out.String() != want {
			r.Errorf("got\n%swant\n%s", &out, want)
		}
	})
}

// fieldsOf returns the JSON names of a struct's fields, and of the fields of those listed in inside.
func fieldsOf(t reflect.Type, inside ...string) map[string]bool {
	names := map[string]bool{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names[name] = true
		if slices.Contains(inside, name) || name == "" {
			maps.Copy(names, fieldsOf(f.Type))
		}
	}
	return names
}

func TestLists_FieldsHaveTheNamesThatTheKindsHave(t *testing.T) {
	for _, list := range []struct {
		row, kind any
		own       []string // fields that the kind does not have, or under another name
	}{
		{Row{}, v1beta1.Volume{}, []string{"csiName", "condition"}},
		{Row{}, v1beta1.Snapshot{}, []string{"csiName", "condition", "claimRef"}},
		{Trashed{}, v1beta1.TrashedVolume{}, []string{"csiName", "node"}},
	} {
		known := fieldsOf(reflect.TypeOf(list.kind), "metadata", "spec", "status")
		for name := range fieldsOf(reflect.TypeOf(list.row)) {
			if !known[name] && !slices.Contains(list.own, name) {
				t.Errorf("%T has the field %s, which %T has not", list.row, name, list.kind)
			}
		}
	}
}

func TestLists_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	const erases = "\x1b[2J\u009b2J"
	odd := aVolume("pvc-a", func(v *v1beta1.Volume) {
		v.Spec.Pool, v.Status.Pool = "fast"+erases, "fast"+erases
		v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNotMounted, Message: "pool" + erases + "\tis not mounted"}}
	})
	failed := odd.DeepCopy()
	failed.Status.Error = &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: "no room" + erases}
	var out strings.Builder
	rows := []Row{recordOf(odd).Row, recordOf(failed).Row}
	check.OK(t, errors.Join(WriteVolumes(&out, rows, true), WriteTrash(&out, []Trashed{{Name: "old" + erases, Pool: erases}}, true)))
	(&Admin{Config: Config{Out: &out}}).sayf("%s", describe(recordOf(odd))) // as before a deletion
	for _, want := range []string{"NotMounted: pool [2J 2J is not mounted", "Exhausted: no room [2J 2J", "old [2J 2J", "in pool fast [2J 2J"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%q", want, &out)
		}
	}
	if strings.ContainsAny(out.String()+rows[0].Condition+rows[1].Condition, "\x1b\u009b") {
		t.Errorf("%q, %+v", &out, rows)
	}
}

func TestCondition_SaysHowFarAPodHasCopied(t *testing.T) {
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{PopulatedBy: v1beta1.PopulatedByPod}}
	v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonPopulating, Message: "a pod copies it"}}
	for want, c := range map[string]*v1beta1.VolumeCopy{
		"Populating: a pod copies it":               nil,
		"Populating: Copying 25%":                   {Phase: v1beta1.CopyCopying, BytesDone: 1, BytesTotal: 4},
		"Populating: Verifying 50%: node n is down": {Phase: v1beta1.CopyVerifying, BytesDone: 2, BytesTotal: 4, Message: "node n is down"},
		"Populating: Pending: 4 are copied":         {Phase: v1beta1.CopyPending, Message: "4 are copied"},
	} {
		v.Status.Copy = c
		if got := recordOf(v).Condition; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
