package volumecopy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

const (
	uid  = types.UID("0c4e0000-0000-0000-0000-000000000001")
	hash = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
)

// a copy into an empty volume of a Ceph pool, from a node.
func at(change ...func(*observed)) observed {
	made := metav1.NewMicroTime(start)
	o := observed{now: start, own: traces{uid: uid}, target: &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", UID: uid},
		Spec: v1beta1.VolumeSpec{
			Name: "v", Node: "block.ceph.holdfast.dev", PopulatedBy: v1beta1.PopulatedByPod,
			SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "s"},
		},
		Status: v1beta1.VolumeStatus{CreationTime: &made, Size: v1beta1.Quantity(100), Mode: v1beta1.ModeFilesystem},
	}}
	for _, c := range change {
		c(&o)
	}
	return o
}

// begun is with the temporary source.
func begun(o *observed) {
	made := metav1.NewMicroTime(start)
	o.own.source = &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: copyName(uid) + "-1", UID: "1"}, Spec: v1beta1.VolumeSpec{Node: "a"},
		Status: v1beta1.VolumeStatus{CreationTime: &made, Size: v1beta1.Quantity(100), Mode: v1beta1.ModeFilesystem, Pool: "fast"},
	}
	o.own.temporary = []*v1beta1.Volume{o.own.source}
}

// bound is with what gives both to a pod.
func bound(o *observed) {
	begun(o)
	o.own.persistent, o.own.claims = map[role]*core.PersistentVolume{}, map[role]*core.PersistentVolumeClaim{}
	for _, r := range roles {
		o.own.persistent[r] = &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: nameOf(uid, r)}}
		o.own.claims[r] = &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: nameOf(uid, r)}}
	}
}

// wasBound is after the claims were bound.
func wasBound(o *observed) {
	for _, r := range roles {
		o.own.claims[r].UID = types.UID("claim of " + r)
		o.own.persistent[r].Spec.ClaimRef = &core.ObjectReference{UID: o.own.claims[r].UID}
	}
}

// putBack is with the content on its disk.
func putBack(o *observed) {
	o.target.Status.Conditions = append(o.target.Status.Conditions, metav1.Condition{Type: v1beta1.CompleteCondition, Status: metav1.ConditionTrue, Message: "etcd was put back"})
}

func status(c v1beta1.VolumeCopy) func(*observed) {
	return func(o *observed) { o.target.Status.Copy = &c }
}

// pod is with that of an attempt, in a state.
func pod(attempt int32, state core.ContainerState) func(*observed) {
	return func(o *observed) {
		bound(o)
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(uid, attempt), CreationTimestamp: metav1.NewTime(start.Add(-time.Minute))}}
		p.Status.ContainerStatuses = []core.ContainerStatus{{Name: containerName, State: state}}
		o.own.pods = append(o.own.pods, p)
	}
}

// pending is with a pod of such an age that no node can have.
func pending(age time.Duration) func(*observed) {
	return func(o *observed) {
		pod(1, core.ContainerState{})(o)
		o.own.pods[0].CreationTimestamp = metav1.NewTime(start.Add(-age))
		o.own.pods[0].Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "no node has it"}}
	}
}

func wanted(o *observed) { o.wanted = true }

func runs(phase v1beta1.CopyPhase, done, total int64) func(*observed) {
	return func(o *observed) {
		pod(1, core.ContainerState{Running: &core.ContainerStateRunning{}})(o)
		o.log = &protocol.Progress{Phase: protocol.Phase(phase), Done: done, Total: total}
	}
}

func ended(attempt, code int32, message string) func(*observed) {
	return pod(attempt, core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.NewTime(start)}})
}

func populated(o *observed) {
	o.target.Status.Conditions = []metav1.Condition{{Type: v1beta1.PopulatedCondition, Status: metav1.ConditionTrue}}
}

func copying(done int64, attempt int32) v1beta1.VolumeCopy {
	return v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesDone: done, BytesTotal: 100, Attempt: attempt}
}

// shown is a plan in words.
func shown(p plan) string {
	var words []string
	count := map[string]int{}
	for _, o := range p.remove {
		switch o := o.(type) {
		case *core.Pod:
			words = append(words, "remove "+o.Name[len("holdfast-"+copyName(uid)):])
		case *v1beta1.Volume:
			words = append(words, "remove source")
		default:
			count[fmt.Sprintf("%Ts", o)[len("*v1."):]]++
		}
	}
	for kind, n := range count {
		words = append(words, fmt.Sprintf("remove %d %s", n, kind))
	}
	if p.giveBack != "" {
		words = append(words, "give back")
	}
	if p.begin {
		words = append(words, "begin")
	}
	if len(p.bind) > 0 {
		words = append(words, "bind")
	}
	if p.start > 0 {
		words = append(words, fmt.Sprintf("start %d", p.start))
	}
	if p.copy != nil {
		words = append(words, fmt.Sprintf("%s attempt %d failures %d %s", p.copy, p.copy.Attempt, p.copy.Failures, p.condition.Reason))
	}
	if p.event != nil {
		words = append(words, p.event.reason)
	}
	return strings.Join(words, ", ")
}

func TestPlan_TakesOneStepAfterTheOther(t *testing.T) {
	deleted := metav1.NewTime(start)
	verified := v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete, BytesDone: 100, BytesTotal: 100, Attempt: 1, Checksum: "sha256:" + hash}
	failed := v1beta1.VolumeCopy{Phase: v1beta1.CopyFailed, Attempt: 1, Message: "no space"}
	for name, test := range map[string]struct {
		o    observed
		want string
		says string // in the status
	}{
		"one that is not on a disk waits for its agent":   {at(func(o *observed) { o.target.Status.CreationTime = nil }), "", ""},
		"one that its agent fills is none of ours":        {at(func(o *observed) { o.target.Spec.PopulatedBy = "" }), "", ""},
		"nor is one that an agent has found":              {at(func(o *observed) { o.target.Labels = map[string]string{v1beta1.AdoptedLabel: "true"} }), "", ""},
		"it waits for a slot":                             {at(func(o *observed) { o.waits = "4 volumes are copied at a time" }), "Pending attempt 0 failures 0 Populating", "4 volumes"},
		"the source comes first":                          {at(), "begin", ""},
		"nothing is copied over what is there":            {at(putBack), "Complete attempt 0 failures 0 Populating", ""},
		"nor goes on":                                     {at(status(copying(50, 1)), runs(v1beta1.CopyCopying, 60, 100), putBack), "remove -1, Complete attempt 1 failures 0 Populating", ""},
		"one that had failed before is there":             {at(status(failed), putBack), "Complete attempt 1 failures 0 Populating", ""},
		"what was there before is known as that":          {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete}), putBack), "Complete attempt 0 failures 0 Populated, Populated", ""},
		"it is waited for":                                {at(begun, func(o *observed) { o.own.source.Status.CreationTime = nil }), "begin", ""},
		"one that is deleted is made again":               {at(begun, func(o *observed) { o.own.source.DeletionTimestamp = &deleted }), "begin", ""},
		"one of an agent beside none is not it":           {at(begun, func(o *observed) { o.own.source = nil }), "begin", ""},
		"what is of one that is gone goes":                {at(bound, func(o *observed) { o.own.source = nil }), "remove 2 PersistentVolumeClaims", ""},
		"both are given to a pod":                         {at(begun), "bind", ""},
		"a claim that goes takes all with it":             {at(bound, func(o *observed) { o.own.claims[source].DeletionTimestamp = &deleted }), "remove 2 PersistentVolumeClaims", ""},
		"what uses one goes first":                        {at(status(copying(1, 1)), runs(v1beta1.CopyCopying, 1, 100), func(o *observed) { o.own.claims[source].DeletionTimestamp = &deleted }), "remove -1", ""},
		"a PersistentVolume of a claim that is gone goes": {at(bound, wasBound, func(o *observed) { o.own.claims = nil }), "remove 2 PersistentVolumes", ""},
		"so does one of another claim":                    {at(bound, wasBound, func(o *observed) { o.own.claims[target].UID = "another" }), "remove 2 PersistentVolumeClaims", ""},
		"one of its own claim stays":                      {at(bound, wasBound, status(copying(50, 3))), "start 3", ""},
		"so does that of a PersistentVolume that goes":    {at(bound, func(o *observed) { o.own.persistent[target].DeletionTimestamp = &deleted }), "remove 2 PersistentVolumeClaims", ""},
		"the pod":                                        {at(bound), "start 1, Pending attempt 1 failures 0 Populating, CopyStarted", ""},
		"no pod while the node is away":                  {at(bound, func(o *observed) { o.down = "node a is down" }), "Pending attempt 0 failures 0 Populating", "node a is down"},
		"killed before the status was written":           {at(runs(v1beta1.CopyCopying, 1, 100)), "Pending attempt 1 failures 0 Populating, CopyStarted", ""},
		"a pod that was deleted is made again":           {at(bound, status(copying(50, 3))), "start 3", ""},
		"it is followed":                                 {at(status(copying(1, 1)), runs(v1beta1.CopyCopying, 8, 100)), "Copying 8% attempt 1 failures 0 Populating", ""},
		"each tenth is shown":                            {at(status(copying(8, 1)), runs(v1beta1.CopyCopying, 10, 100)), "Copying 10% attempt 1 failures 0 Populating, CopyProgress", ""},
		"it does not go back":                            {at(status(copying(50, 1)), runs(v1beta1.CopyCopying, 20, 100)), "", ""},
		"verifying is further than copying":              {at(status(copying(90, 1)), runs(v1beta1.CopyVerifying, 5, 100)), "Verifying 5% attempt 1 failures 0 Populating", ""},
		"a log that says nothing known is none":          {at(status(copying(90, 1)), runs("Dreaming", 95, 100)), "", ""},
		"what fails is counted":                          {at(status(copying(50, 1)), ended(1, 1, "input/output error")), "Copying 50% attempt 2 failures 1 Populating, CopyRetried", "attempt 1 failed: input/output error"},
		"once":                                           {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 2, Failures: 1}), ended(1, 1, "input/output error")), "", ""},
		"then it goes":                                   {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 2, Failures: 1}), ended(1, 1, ""), func(o *observed) { o.now = start.Add(firstRetry) }), "remove -1", ""},
		"and the next one comes":                         {at(bound, status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 2, Failures: 1})), "start 2", ""},
		"progress forgives":                              {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesTotal: 100, BytesDone: 1, Attempt: 1, Failures: 5}), runs(v1beta1.CopyCopying, 2, 100)), "Copying 2% attempt 1 failures 0 Populating", ""},
		"six in a row are the end":                       {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 6, Failures: 5}), ended(6, 1, "input/output error")), "Failed attempt 6 failures 6 CopyFailed, CopyFailed", "6 pods in a row"},
		"what no other mends is":                         {at(status(copying(50, 1)), ended(1, protocol.FinalExit, "no space left")), "Failed attempt 1 failures 0 CopyFailed, CopyFailed", "no space left"},
		"a target with other content is not given up":    {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 9, Failures: 5}), ended(9, protocol.HasContentExit, "it has content")), "Copying attempt 10 failures 1 Populating, CopyRetried", "it has content"},
		"nor compared again at once":                     {at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, Attempt: 10, Failures: 1}), ended(9, protocol.HasContentExit, "it has content"), func(o *observed) { o.now = start.Add(slowestRetry - time.Second) }), "", ""},
		"a crash of the program may not come again":      {at(status(copying(50, 1)), ended(1, 2, "panic")), "Copying 50% attempt 2 failures 1 Populating, CopyRetried", "panic"},
		"a node that kills it may not again":             {at(status(copying(50, 1)), ended(1, 137, "")), "Copying 50% attempt 2 failures 1 Populating, CopyRetried", "exit code 137"},
		"success needs what was verified":                {at(status(copying(50, 1)), ended(1, 0, "done")), "Copying 50% attempt 2 failures 1 Populating, CopyRetried", `"done"`},
		"success":                                        {at(status(copying(50, 1)), ended(1, 0, `{"bytes":100,"files":3,"sha256":"`+hash+`"}`)), "Complete attempt 1 failures 0 Populating, CopyVerified", ""},
		"a pod that is being deleted is waited for":      {at(status(copying(50, 1)), ended(1, 0, `{"bytes":100,"files":3,"sha256":"`+hash+`"}`), func(o *observed) { o.own.pods[0].DeletionTimestamp = &deleted }), "Copying 50% attempt 1 failures 0 Populating", "being deleted"},
		"then the pod goes":                              {at(status(verified), ended(1, 0, "")), "remove -1", ""},
		"then the claims":                                {at(status(verified), bound), "remove 2 PersistentVolumeClaims", ""},
		"then the PersistentVolumes":                     {at(status(verified), bound, func(o *observed) { o.own.claims = nil }), "remove 2 PersistentVolumes", ""},
		"what is attached is waited for":                 {at(status(verified), begun, func(o *observed) { o.own.attached = []string{"a"} }), "", ""},
		"its agent records it":                           {at(status(verified), begun), "Complete attempt 1 failures 0 Populating", "has yet to record"},
		"and then it is populated":                       {at(status(verified), begun, putBack), "Complete attempt 1 failures 0 Populated, Populated", ""},
		"then the source goes":                           {at(status(verified), begun, populated), "remove source", ""},
		"and that is all":                                {at(status(verified), populated), "", ""},
		"what failed is removed as well":                 {at(status(failed), ended(1, protocol.FinalExit, "")), "remove -1", ""},
		"and stays as it is":                             {at(status(failed)), "", ""},
		"so is what belongs to a volume that is deleted": {at(status(copying(1, 1)), runs(v1beta1.CopyCopying, 1, 100), func(o *observed) { o.target.DeletionTimestamp = &deleted }), "remove -1", ""},
		"a pod that cannot start keeps its slot":         {at(bound, status(copying(50, 1)), pending(time.Hour)), "Copying 50% attempt 1 failures 0 Populating", "no node has it"},
		"unless another wants it":                        {at(bound, status(copying(50, 1)), pending(time.Hour), wanted), "remove -1, give back, Copying 50% attempt 1 failures 0 Populating", "no node has it"},
		"and not at once":                                {at(bound, status(copying(50, 1)), pending(time.Second), wanted), "Copying 50% attempt 1 failures 0 Populating", "no node has it"},
		"one whose volumes are attached has longer":      {at(bound, status(copying(50, 1)), pending(2*time.Minute), wanted, func(o *observed) { o.own.pods[0].Status.Conditions = nil }), "Copying 50% attempt 1 failures 0 Populating", "has not started yet"},
		"one that runs keeps it too":                     {at(status(copying(1, 1)), runs(v1beta1.CopyCopying, 1, 100), wanted), "", ""},
		"and to one that is gone": {observed{now: start, others: []traces{func() traces {
			o := at(runs(v1beta1.CopyCopying, 1, 100))
			return o.own
		}()}}, "remove -1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(test.o)
			if got := shown(p); got != test.want {
				t.Errorf("planned is %q, want %q", got, test.want)
			}
			if test.says != "" && (p.copy == nil || !strings.Contains(p.copy.Message, test.says)) {
				t.Errorf("the status is %+v, which does not say %q", p.copy, test.says)
			}
		})
	}
}

func TestPlan_LooksAgainUntilThereIsNothingLeft(t *testing.T) {
	for name, o := range map[string]observed{
		"waiting": at(func(o *observed) { o.waits = "4 volumes" }), "bound": at(bound), "running": at(status(copying(1, 1)), runs(v1beta1.CopyCopying, 1, 100)),
		"failed": at(status(copying(50, 1)), ended(1, 1, "")), "paused": at(status(copying(50, 2)), ended(1, 1, "")),
		"populated": at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete}), begun), "its source is left": at(populated, begun),
		"attached": at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyComplete}), begun, func(o *observed) { o.own.attached = []string{"a"} }),
	} {
		if p := newPlan(o); p.again <= 0 || p.again > lookAgain {
			t.Errorf("%s: it looks again after %v", name, p.again)
		}
	}
	if p := newPlan(at(status(v1beta1.VolumeCopy{Phase: v1beta1.CopyFailed}))); p.again != 0 {
		t.Errorf("after the end it looks again after %v", p.again)
	}
}

func TestProgress_IsTheLastLineThatHasSome(t *testing.T) {
	for log, want := range map[string]int64{
		"": 0, "time=12:00 level=INFO msg=x\n": 0, `{"phase":"Copying","done":1,"total":9}` + "\n" + `{"phase":"Copying","done":2,"total":9}` + "\ntime=12:00 msg=x\n": 2,
		`{"phase":"Copying","done":3,"total":9}` + "\n" + `{"phase":"Copying","do`: 3, `{"done":7}`: 0,
	} {
		p := lastProgress([]byte(log))
		if (p == nil) != (want == 0) || p != nil && p.Done != want {
			t.Errorf("%q says %+v, want %d", log, p, want)
		}
	}
}

func TestPod_HasNoMoreRightsThanACopyNeeds(t *testing.T) {
	for mode, devices := range map[v1beta1.Mode]int{v1beta1.ModeFilesystem: 0, v1beta1.ModeBlock: 2} {
		o := at(begun)
		o.target.Status.Mode = mode
		p := podOf("holdfast-system", o.target, o.own.source, 7, "holdfast:1")
		c := p.Spec.Containers[0]
		s := c.SecurityContext
		if s.Privileged != nil || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" ||
			*p.Spec.AutomountServiceAccountToken || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: it has %+v", mode, s)
		}
		if want := map[v1beta1.Mode][]core.Capability{v1beta1.ModeFilesystem: capabilities}[mode]; !slices.Equal(s.Capabilities.Add, want) {
			t.Errorf("%s: it has the capabilities %v", mode, s.Capabilities.Add)
		}
		if len(c.VolumeDevices) != devices || len(c.VolumeMounts) != 2-devices || !p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly || p.Spec.Volumes[1].PersistentVolumeClaim.ReadOnly {
			t.Errorf("%s: it has %+v, %+v of %+v", mode, c.VolumeMounts, c.VolumeDevices, p.Spec.Volumes)
		}
		if c.Resources.Limits.Cpu().Value() != 1 || c.Resources.Limits.Memory().Value() != 256<<20 || p.Spec.RestartPolicy != core.RestartPolicyNever {
			t.Errorf("%s: it may use %+v", mode, c.Resources)
		}
		if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != uid || owner.BlockOwnerDeletion != nil {
			t.Errorf("%s: kubectl drain finds the controller %v", mode, owner)
		}
		if attemptOf(uid, p) != 7 || attemptOf("other", p) != 0 || len(p.Spec.Tolerations) != 1 {
			t.Errorf("%s: pod %s is of attempt %d, and tolerates %v", mode, p.Name, attemptOf(uid, p), p.Spec.Tolerations)
		}
	}
}

func TestTemporary_IsWhatItsNameSaysToo(t *testing.T) {
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: (&Controller{}).sourceName(uid)}, Spec: v1beta1.VolumeSpec{Labels: map[string]string{v1beta1.CopyLabel: "v", v1beta1.CopyUIDLabel: string(uid)}}}
	if !isTemporary(v) || concerned(v)[0] != "v" {
		t.Error("it is not known")
	}
	v.Name = "another" // as an agent may write
	if isTemporary(v) || concerned(v) != nil {
		t.Error("another leads to what belongs to the copy")
	}
	a, again, b := &Controller{key: []byte("a")}, &Controller{key: []byte("a")}, &Controller{key: []byte("b")}
	if a.sourceName(uid) != again.sourceName(uid) || a.sourceName(uid) == b.sourceName(uid) {
		t.Errorf("one process says %s and %s, another %s", a.sourceName(uid), again.sourceName(uid), b.sourceName(uid))
	}
}
