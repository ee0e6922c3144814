package ceph

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// fenced lets a pod be deleted by force when its node is lost.
var fenced = kube.Label(v1beta1.FencedLabel, "true")

// awaitFenced waits until the condition Fenced of a node has one of the reasons, and returns it.
func awaitFenced(s *kube.Space, node string, reasons ...string) (c *metav1.Condition) {
	kube.AwaitOne(s, s.Holdfast("storagenodes"), node, "to be "+strings.Join(reasons, " or "), func(u *unstructured.Unstructured) (bool, error) {
		n := &v1beta1.StorageNode{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
			return false, err
		}
		c = meta.FindStatusCondition(n.Status.Conditions, v1beta1.FencedCondition)
		return c != nil && slices.Contains(reasons, c.Reason), nil
	})
	return c
}

// clientsOf are the addresses of the clients that a node has.
func clientsOf(t *testing.T, s *kube.Space, node string) (addresses []string) {
	t.Helper()
	found := check.Got(s.Holdfast("storagenodes").Get(t.Context(), node, metav1.GetOptions{}))(t)
	n := &v1beta1.StorageNode{}
	check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, n))
	for _, c := range n.Status.CephClients {
		addresses = append(addresses, string(c.Address))
	}
	if len(addresses) == 0 {
		t.Fatalf("node %s has recorded no client", node)
	}
	return addresses
}

// awaitOfPools waits until each pool has an event about a node that is not older than since.
func awaitOfPools(s *kube.Space, reason, node string, since time.Time) {
	since = since.Truncate(time.Second) // as events are
	for _, pool := range []string{imageClass, fileClass} {
		site := v1beta1.NodeOfCephPool(pool)
		about := metav1.ListOptions{FieldSelector: "involvedObject.name=" + site + ",reason=" + reason}
		kube.Await(s, s.Client.CoreV1().Events(metav1.NamespaceDefault), about, site+" to get the event "+reason+" of "+node, func(all []*corev1.Event) (bool, error) {
			return slices.ContainsFunc(all, func(e *corev1.Event) bool {
				return strings.Contains(e.Message, node) && !e.LastTimestamp.Time.Before(since)
			}), nil
		})
	}
}

// expectLetIn sees that Ceph keeps none of the clients of a node out any more, which were shut out after some time. It has
// others on its list: who takes the lock of an image from a client that is dead has it blocklisted for an hour.
func expectLetIn(t *testing.T, s *kube.Space, node string, addresses []string, since time.Time) {
	t.Helper()
	awaitOfPools(s, "ClientsShutOut", node, since)
	awaitOfPools(s, "ClientsLetIn", node, since)
	listed := check.Got(storage.Ceph(t.Context(), "osd", "blocklist", "ls"))(t)
	for _, a := range addresses {
		if strings.Contains(listed, a+" ") {
			t.Errorf("%s is on the blocklist: %s", a, listed)
		}
	}
}

// fencingAfter has nodes shut out by silence, if a pod of the test's namespace asks for it, until the end of the test.
func fencingAfter(t *testing.T, s *kube.Space, after string) {
	t.Helper()
	set := func(ctx context.Context, f v1beta1.FencingSpec) error {
		if err := change(ctx, func(spec *v1beta1.StorageClusterSpec) { spec.Fencing = f }); err != nil {
			return err
		}
		return awaitReady(ctx)
	}
	t.Cleanup(func() {
		check.Report(t, set(context.WithoutCancel(t.Context()), v1beta1.FencingSpec{}))
	})
	check.OK(t, set(t.Context(), v1beta1.FencingSpec{After: new(v1beta1.Duration(after)), Namespaces: []string{s.Namespace}}))
}

// keyOf is the key of the user that a node has for the pool of images; "" if there is no such user.
func keyOf(t *testing.T, node string) string {
	t.Helper()
	key, err := storage.Ceph(t.Context(), "auth", "get-key", "client."+nodeUserName+"."+imageClass+"."+node)
	if err != nil && !strings.Contains(err.Error(), "ENOENT") {
		t.Fatal(err)
	}
	return key
}

func TestFence_NodeWithoutPowerIsShutOutAndNoSyncedByteIsLost(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	s.Claim("data", "1Gi", kube.OfClass(imageClass))
	s.Claim("other", "1Gi", kube.OfClass(imageClass))
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(one), fenced, kube.Script(kube.Appender))
	s.Ready("writer")
	s.Pod("successor", kube.Mount("data", "/data"), kube.OnNode(other))
	s.AwaitEvent("successor", "FailedAttachVolume", "already used")
	written := s.FollowAppender("writer")
	clients, since, key := clientsOf(t, s, one), time.Now(), keyOf(t, one)
	boot := s.CutPower(one)
	written.End()
	in := s.DeclareOut(one)
	awaitFenced(s, one, v1beta1.ReasonFenced)
	wait.Until(t, "the end of the user of "+one, func() bool { return keyOf(t, one) == "" })
	if key == "" || keyOf(t, other) == "" {
		t.Errorf("nodes that are not shut out have the keys %q and %q", key, keyOf(t, other))
	}
	s.Ready("successor")
	s.ExpectBlocks("successor", written)
	t.Logf("all of %d blocks are there", len(written.Blocks))

	content := func() string { return s.Exec("successor", "sh", "-ec", "sha256sum /data/blocks; ls /data") }
	before := content()
	boot()
	// Its kernel has new clients now, which Ceph knows nothing about.
	spoil := kube.Script("echo spoilt >/data/blocks; echo spoilt >/data/spoilt; sync; sleep infinity")
	s.Pod("same", kube.Mount("data", "/data"), kube.OnNode(one), kube.TolerateAll, spoil)
	s.Pod("other", kube.Mount("other", "/data"), kube.OnNode(one), kube.TolerateAll, spoil)
	s.AwaitEvent("same", "FailedAttachVolume", "already used")
	s.AwaitEvent("other", "FailedMount", "node "+one+" is shut out of all Ceph clusters") // no node has that volume
	for _, pod := range []string{"same", "other"} {
		p, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil || p.Spec.NodeName != one || p.Status.Phase != corev1.PodPending {
			t.Errorf("pod %s of the node that is shut out is %s on %q: %v", pod, p.Status.Phase, p.Spec.NodeName, err)
		}
		s.DeletePod(pod)
	}
	if found := content(); found != before {
		t.Errorf("the volume has\n%sand had\n%s: the node that is shut out has written", found, before)
	}
	s.ExpectBlocks("successor", written)

	in()
	awaitFenced(s, one, v1beta1.ReasonReleased)
	expectLetIn(t, s, one, clients, since)
	s.DeletePod("successor")
	s.Pod("again", kube.Mount("data", "/data"), kube.OnNode(one), kube.Script(kube.Appender))
	s.Ready("again")
	s.ExpectBlocks("again", written)
	if now := keyOf(t, one); now == "" || now == key {
		t.Errorf("let in again it has the key %q, and had %q", now, key)
	}
}

// remote is a pod that runs scripts which it gets over its own network, whether or not its node reaches the API server.
type remote struct {
	t   *testing.T
	url string
}

// remoteScript serves a program that runs what is sent to it.
const remoteScript = `
	mkdir -p /tmp/www/cgi-bin
	printf '%s\n' '#!/bin/sh' 'printf "Content-Type: text/plain\r\n\r\n"' 'sh -ec "$(cat)" 2>&1' 'echo "exit $?"' >/tmp/www/cgi-bin/do
	chmod +x /tmp/www/cgi-bin/do
	exec httpd -f -p 9000 -h /tmp/www`

func newRemote(t *testing.T, s *kube.Space, pod string) remote {
	t.Helper()
	r := remote{t, "http://" + net.JoinHostPort(s.Ready(pod).Status.PodIP, "9000") + "/cgi-bin/do"}
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	if !s.Eventually(ctx, "pod "+pod+" to answer", func(ctx context.Context) error { _, err := r.try(ctx, "true"); return err }) {
		t.FailNow()
	}
	return r
}

// do returns what a script printed, and whether it succeeded.
func (r remote) do(script string) (said string, succeeded bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), kube.Patience)
	defer cancel()
	out := check.Got(r.try(ctx, script))(r.t)
	said, code, found := strings.Cut(out, "exit ")
	if !found {
		r.t.Fatalf("the pod says %q", out)
	}
	return said, strings.TrimSpace(code) == "0"
}

func (r remote) try(ctx context.Context, script string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(script))
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, out)
	}
	return string(out), err
}

// write has a block of random bytes written to the device of the pod, past its cache.
func write(block int) string {
	return fmt.Sprintf("head -c 4096 /dev/urandom >/tmp/block; dd if=/tmp/block of=/dev/disk bs=4096 seek=%d oflag=direct conv=notrunc,fsync", block)
}

func TestFence_NodeThatIsOnlyCutOffCannotWriteAnyMore(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	fencingAfter(t, s, "1m")
	s.Claim("disk", "64Mi", kube.OfClass(imageClass), kube.Block)
	device := kube.Device("disk", "/dev/disk")
	s.Pod("old", device, kube.OnNode(one), fenced, kube.Script(remoteScript))
	old := newRemote(t, s, "old")
	if said, ok := old.do(write(0)); !ok {
		t.Fatal(said)
	}
	s.Pod("new", device, kube.OnNode(other))
	s.AwaitEvent("new", "FailedAttachVolume", "already used")

	clients, since := clientsOf(t, s, one), time.Now()
	mend := s.CutAPI(one)
	if said, ok := old.do(write(1) + "; sha256sum </tmp/block"); !ok {
		t.Fatalf("a node without the API server cannot write: %s", said)
	}
	before, _ := old.do("sha256sum </dev/disk")
	awaitFenced(s, one, v1beta1.ReasonFenced)
	s.AwaitEvent("old", v1beta1.ReasonFenced, one, "the pod is deleted")
	// The other node gets it once the first is shut out.
	s.Ready("new")
	content := func() string { return s.Exec("new", "sh", "-c", "sha256sum </dev/disk") }
	if found := content(); found != before {
		t.Errorf("the device has %s, and had %s", found, before)
	}
	for _, script := range []string{write(2), write(0), "head -c 4096 /dev/urandom | dd of=/dev/disk bs=4096 seek=3 conv=notrunc,fsync"} {
		if said, ok := old.do(script); ok {
			t.Errorf("the node that is shut out says that it has written: %s", said)
		}
	}
	if found := content(); found != before {
		t.Errorf("the device has %s, and had %s: the node that is shut out has written", found, before)
	}
	s.Exec("new", "sh", "-ec", write(4))

	mend()
	awaitFenced(s, one, v1beta1.ReasonReleased)
	expectLetIn(t, s, one, clients, since)
	kube.AwaitNone(s, s.Client.CoreV1().Pods(s.Namespace), kube.Named("old"), "the pod of the node that was shut out")
	s.DeletePod("new")
	s.Run("again", device, kube.OnNode(one), kube.Script(write(5)))
}

// nameClients writes the addresses of the clients of a node down that its kernel does not show, as the metadata server knows
// them. Its agent must not reach the API server: it would write what the kernel shows.
func nameClients(t *testing.T, s *kube.Space, node string) {
	t.Helper()
	listed, err := storage.Ceph(t.Context(), "daemon", filepath.Join(storage.Dir, string(ceph.MDS)+".asok"), "session", "ls")
	check.OK(t, err)
	var sessions []struct{ Inst string } // client.4305 v1:10.0.0.5:0/1148
	if err := json.Unmarshal([]byte(listed), &sessions); err != nil {
		t.Fatalf("%q: %v", listed, err)
	}
	nodes := s.Holdfast("storagenodes")
	found, err := nodes.Get(t.Context(), node, metav1.GetOptions{})
	check.OK(t, err)
	n := &v1beta1.StorageNode{}
	check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, n))
	for i := range n.Status.CephClients {
		c := &n.Status.CephClients[i]
		for _, session := range sessions {
			if id, address, _ := strings.Cut(session.Inst, " "); id == c.ID && c.Address == "" {
				address = address[strings.LastIndex(address[:strings.Index(address, ":0/")], ":")+1:]
				t.Logf("%s is %s", id, address)
				c.Address = v1beta1.CephAddress(address)
			}
		}
		if c.Address == "" {
			t.Fatalf("the metadata server has no session of %s: %s", c.ID, listed)
		}
	}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"cephClients": n.Status.CephClients}})
	if err == nil {
		_, err = nodes.Patch(t.Context(), node, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	}
	check.OK(t, err)
}

func TestFence_NodeThatIsOnlyCutOffCannotChangeAFileSystemAnyMore(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	fencingAfter(t, s, "1m")
	s.Claim("files", "1Gi", kube.OfClass(fileClass))
	mount := kube.Mount("files", "/data")
	s.Pod("old", mount, kube.OnNode(one), fenced, kube.AsRoot, kube.Script(remoteScript))
	old := newRemote(t, s, "old")
	// What it does all the time must end, too.
	if said, ok := old.do("mkdir /data/many; (n=0; while :; do n=$((n + 1)); echo $n >/data/many/$n; sleep 0.2; done) >/dev/null 2>&1 </dev/null &"); !ok {
		t.Fatal(said)
	}
	s.Pod("new", mount, kube.OnNode(other), kube.AsRoot)
	s.AwaitEvent("new", "FailedAttachVolume", "already used")

	since := time.Now()
	mend := s.CutAPI(one)
	nameClients(t, s, one)
	clients := clientsOf(t, s, one)
	if said, ok := old.do("head -c 20000 /dev/urandom >/data/file; sync /data/file"); !ok {
		t.Fatalf("a node without the API server cannot write: %s", said)
	}
	before, _ := old.do("sha256sum </data/file")
	awaitFenced(s, one, v1beta1.ReasonFenced)
	s.AwaitEvent("old", v1beta1.ReasonFenced, one, "the pod is deleted")
	s.Ready("new")
	if found := s.Exec("new", "sh", "-c", "sha256sum </data/file"); found != before {
		t.Errorf("the file has %s, and had %s", found, before)
	}
	content := func() string {
		return s.Exec("new", "sh", "-ec", "cd /data; find . | wc -l; find . -type f | sort | xargs sha256sum | sha256sum")
	}
	held := content()
	for _, script := range []string{
		"head -c 4096 /dev/urandom | dd of=/data/file conv=notrunc,fsync",
		"echo created >/data/created; sync /data/created",
		"truncate -s 1 /data/file; sync /data/file",
		"mv /data/file /data/moved; sync /data/moved",
		"rm /data/file; test ! -e /data/file",
	} {
		if said, ok := old.do(script); ok {
			t.Errorf("the node that is shut out says that it has done %q: %s", script, said)
		}
	}
	if found := content(); found != held {
		t.Errorf("the file system has\n%sand had\n%s: the node that is shut out has changed it", found, held)
	}
	s.Exec("new", "sh", "-ec", "echo new >/data/new; sync /data/new")

	// The agent would take a client that the kernel does not show, and has an address even so, for gone: only a node that was
	// started again has none.
	boot := s.CutPower(one)
	mend()
	boot()
	awaitFenced(s, one, v1beta1.ReasonReleased)
	expectLetIn(t, s, one, clients, since)
	kube.AwaitNone(s, s.Client.CoreV1().Pods(s.Namespace), kube.Named("old"), "the pod of the node that was shut out")
	s.DeletePod("new")
	if found := s.Run("again", mount, kube.OnNode(one), kube.Script("cat /data/new")); found != "new\n" {
		t.Errorf("the node that is back reads %q", found)
	}
}

// A kernel without debugfs does not say who it is to a metadata server, so its node cannot be shut out.
func TestFence_NodeWithClientsThatAreNotKnownIsNamedAndKeepsItsVolumes(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	s.Claim("data", "1Gi", kube.OfClass(fileClass))
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(one), fenced)
	s.Ready("writer")
	if strings.Contains(s.OnHost(one, "cat /proc/filesystems"), "debugfs") {
		t.Skip("the kernel of the node has debugfs, so its clients of CephFS are known: nothing is to be named")
	}
	s.Exec("writer", "sh", "-ec", "echo content >/data/file; sync /data/file")
	boot := s.CutPower(one)
	in := s.DeclareOut(one)
	if c := awaitFenced(s, one, v1beta1.ReasonNotFenced); !strings.Contains(c.Message, "CONFIG_DEBUG_FS") || !strings.Contains(c.Message, storage.FSID) {
		t.Errorf("the condition says %q", c.Message)
	}
	attachments, err := s.Client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	volume := s.Volume("data").Name
	if err != nil || !slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool {
		return a.Spec.NodeName == one && *a.Spec.Source.PersistentVolumeName == volume
	}) {
		t.Errorf("the volume is not attached to the lost node any more: %v", err)
	}
	boot()
	in()
	awaitFenced(s, one, v1beta1.ReasonWithdrawn, v1beta1.ReasonReleased)
	if found := s.Run("reader", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script("cat /data/file")); found != "content\n" {
		t.Errorf("another node reads %q", found)
	}
}

// serveFrom runs an NFS server on one of two nodes, with its volumes in an image, and on the other one the pod holder, which
// has a lock and writes.
func serveFrom(s *kube.Space, one, other, script string) (server string, goesOn func()) {
	uncordon := s.Cordon(other)
	server = s.ServeOnAny("shared", []string{one, other}, map[string]any{
		"storage": map[string]any{"storageClassName": imageClass, "size": "3Gi"}, "reclaimPolicy": "Delete",
	})
	uncordon()
	class := s.Class("shared", "csi.holdfast.dev", "shared", "true", "nfsServer", s.Namespace+"/shared")
	s.Claim("data", "64Mi", kube.OfClass(class), kube.AccessMode(corev1.ReadWriteMany))
	s.Pod("holder", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script(script))
	s.Ready("holder")
	goesOn = func() { s.AwaitLines("holder", s.Wrote("holder")+20) }
	goesOn()
	return server, goesOn
}

func awaitServerOn(s *kube.Space, server, node string) {
	kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), server, "to run on the other node", func(p *corev1.Pod) (bool, error) {
		return p.Spec.NodeName == node && p.Status.Phase == corev1.PodRunning, nil
	})
}

func expectWhole(t *testing.T, s *kube.Space) {
	t.Helper()
	if wrong := s.Exec("holder", "sh", "-c", "awk '$1 != last && $1 != last + 1 { print NR, $1 } { last = $1 }' /data/log"); wrong != "" {
		t.Errorf("lines are missing: %s", wrong)
	}
	if restarts := s.Ready("holder").Status.ContainerStatuses[0].RestartCount; restarts > 0 {
		t.Errorf("the client failed %d times", restarts)
	}
}

// expectReaders reads what a client writes by processes that begin after the server has moved: in the pod of the client, which the
// kubelet starts, and in a pod of its own, which does without the kubelet. The one that hangs says where.
func expectReaders(t *testing.T, s *kube.Space, node string) {
	t.Helper()
	const read = "timeout -s KILL 20 sh -c 'wc -l </data/log'"
	s.Pod("reader", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script(remoteScript))
	reader := newRemote(t, s, "reader")
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := s.ExecIn(ctx, s.Namespace, "holder", "", "sh", "-c", read)
		cancel()
		if said, ok := reader.do(read); err != nil || !ok {
			t.Fatalf("read %d: in the pod of the client %v; in a pod of its own %q, %v", i, err, said, ok)
		}
	}
}

// retrying is a Holder that writes a number again that it could not write: before a server notices that its disk is gone, the
// disk's error has reached clients.
const retrying = `flock /data/lock sh -c '
	n=0; while sleep 0.2; do n=$((n+1)); until echo $n >>/data/log && sync /data/log; do sleep 0.2; done; echo $n; done'`

// The server's node loses only the API server: it runs on, and so do its clients and their connections.
func TestFence_NFSServerOnANodeThatIsOnlyCutOffServesNoMore(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	fencingAfter(t, s, "1m")
	server, goesOn := serveFrom(s, one, other, retrying)
	s.Pod("near", kube.Mount("data", "/data"), kube.OnNode(one), kube.TolerateAll, kube.Script(remoteScript))
	near := newRemote(t, s, "near")
	const last = "timeout -s KILL 10 tail -n 1 /data/log"
	if said, ok := near.do(last + "; echo 1 >/data/near; sync /data/near"); !ok {
		t.Fatal(said)
	}

	clients, cut := clientsOf(t, s, one), time.Now()
	mend := s.CutAPI(one)
	if said, ok := near.do(last); !ok {
		t.Fatalf("a server without the API server does not serve: %s", said)
	}
	awaitFenced(s, one, v1beta1.ReasonFenced)
	awaitServerOn(s, server, other)
	goesOn()
	t.Logf("the client wrote %.0f s after its server was cut off", time.Since(cut).Seconds())
	// The way of this client to the server does not change before its node reaches the API server.
	for _, script := range []string{last, "timeout -s KILL 10 sh -c 'echo 2 >>/data/near; sync /data/near'"} {
		if said, ok := near.do(script); ok {
			t.Errorf("the server that is shut out still serves: %s", said)
		}
	}
	expectWhole(t, s)

	mend()
	awaitFenced(s, one, v1beta1.ReasonReleased)
	expectLetIn(t, s, one, clients, cut)
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	s.Eventually(ctx, "the client on the node that was cut off to go on, beside one that has the lock", func(ctx context.Context) error {
		said, err := near.try(ctx, "timeout -s KILL 10 flock -n /data/lock echo free || { test $? = 1 && cat /data/near; }")
		if err == nil && said != "1\nexit 0\n" {
			err = fmt.Errorf("it says %q", said)
		}
		return err
	})
	goesOn()
	expectWhole(t, s)
}

func TestFence_NFSServerMovesAndItsClientsKeepTheirLocks(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	server, goesOn := serveFrom(s, one, other, kube.Holder)

	clients, cut := clientsOf(t, s, one), time.Now()
	boot := s.CutPower(one)
	in := s.DeclareOut(one)
	awaitFenced(s, one, v1beta1.ReasonFenced)
	awaitServerOn(s, server, other)
	goesOn()
	t.Logf("the client wrote %.0f s after the power cut of its server", time.Since(cut).Seconds())
	expectReaders(t, s, other)
	expectWhole(t, s)

	boot()
	in()
	awaitFenced(s, one, v1beta1.ReasonReleased)
	expectLetIn(t, s, one, clients, cut)
	// Only another kernel can show that the lock is held.
	if found := s.Run("rival", kube.Mount("data", "/data"), kube.OnNode(one), kube.Script("flock -n /data/lock echo free || { test $? = 1 && echo held; }")); found != "held\n" {
		t.Errorf("to another node the lock is %q", found)
	}
}
