package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// Attacks of a tenant who may create pods, from a pod of his own. Where it can be seen, a test also shows that the attack
// would work if nothing stood against it.

func TestTenant_APodReachesNoNFSServerByItself(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node := nodesWithClients(t)[0]
	server := serve(t, s)
	s.Claim("shop", "32Mi", byMany, kube.OfClass(plain(t, s)))
	s.Run("owner", kube.Mount("shop", "/data"), kube.OnNode(node), kube.Script("echo secret >/data/it; sync"))
	export := s.Volume("shop").Spec.NFS
	// The kernel's client in the network of the pod is as any program there that speaks NFS.
	s.Pod("stranger", kube.OnNode(node), kube.AsRoot, kube.Capable("SYS_ADMIN"))
	own := s.Ready("stranger").Status.PodIP
	ask := func(address, path string) string {
		return s.Exec("stranger", "sh", "-c", fmt.Sprintf(`mkdir -p /there
			if timeout 60 mount -t nfs4 -o vers=4.2,soft,timeo=100,retrans=2,addr=%[1]s,clientaddr=%[2]s %[1]s:%[3]s /there; then
				find /there | head; timeout 60 cat /there/it; umount /there
			fi </dev/null 2>&1`, address, own, path))
	}
	for _, address := range []string{export.Server, s.Ready(server).Status.PodIP} {
		if said := s.Exec("stranger", "sh", "-c", "nc -w 10 "+address+" 2049 </dev/null && echo open"); said != "open\n" {
			t.Errorf("port 2049 of %s is not reached at all: %q; the attack says nothing of the server", address, said)
		}
		if said := ask(address, export.Path); !strings.Contains(said, "failed") || strings.Contains(said, "secret") {
			t.Errorf("a pod that mounts %s:%s by itself finds %q", address, export.Path, said)
		}
		if said := ask(address, "/"); strings.Contains(said, "secret") || strings.Contains(said, "pvc-") {
			t.Errorf("a pod that mounts what is above the volumes finds %q", said)
		}
	}

	amend(t, s, "shared", map[string]any{"exports": map[string]any{"clients": []string{"0.0.0.0/0"}}})
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	s.Eventually(ctx, "the attack to work on a server that is open to everybody", func(context.Context) error {
		if said := ask(export.Server, export.Path); !strings.Contains(said, "secret") {
			return fmt.Errorf("the pod finds %q", said)
		}
		return nil
	})
}

// The kubelet mounts a volume of the type nfs with the address of the node, which every server admits.
func TestTenant_PodMountsNoNFSServerWithoutAClaim(t *testing.T) {
	t.Parallel()
	s, owner := begin(t), begin(t)
	node := nodesWithClients(t)[0]
	serve(t, owner)
	owner.Claim("shop", "32Mi", byMany, kube.OfClass(plain(t, owner)))
	owner.Run("owner", kube.Mount("shop", "/data"), kube.OnNode(node), kube.Script("echo secret >/data/it; sync"))
	export := owner.Volume("shop").Spec.NFS
	thief := func(server, path string) error {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Create(t.Context(), kube.NewPod("thief", s.Home, kube.MountNFS(server, path, "/all")), metav1.CreateOptions{})
		return err
	}
	for _, server := range []string{export.Server, "nfs-shared." + owner.Namespace + ".svc"} {
		for _, path := range []string{export.Path, "/"} {
			if err := thief(server, path); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.nfs.inlineVolumeNamespaces") {
				t.Errorf("a pod that mounts %s:%s: %v", server, path, err)
			}
		}
	}
	s.AllowNFSMounts()
	if found := s.Run("allowed", kube.MountNFS(export.Server, export.Path, "/all"), kube.OnNode(node), kube.Script("cat /all/it")); found != "secret\n" {
		t.Errorf("without the policy the pod finds %q; the attack is none", found)
	}
	s.DeletePod("allowed")
}

// The kubelet mounts a volume of the type nfs at the port of NFS alone, and finds nothing there.
func TestTenant_PodReachesNoServerOfAnotherPortWithoutAClaim(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node := nodesWithClients(t)[0]
	s.AllowNFSMounts()
	spec := storage()
	spec["service"] = map[string]any{"port": 3049}
	s.Serve("shared", s.Home, spec)
	for door, class := range byBothDoors(t, s) {
		s.Claim(door, "32Mi", byMany, kube.OfClass(class))
		for _, pod := range []string{"writer", "reader"} {
			if found := s.Run(door+"-"+pod, kube.Mount(door, "/data"), kube.OnNode(node), kube.Script("echo "+pod+" >>/data/it; sync /data/it; cat /data/it")); !strings.HasPrefix(found, "writer\n") {
				t.Errorf("%s of %s: %q", pod, door, found)
			}
		}
	}
	export := s.Volume("plain").Spec.NFS
	s.Pod("thief", kube.MountNFS(export.Server, export.Path, "/all"), kube.OnNode(node))
	s.AwaitEvent("thief", "FailedMount", export.Server)
	s.DeletePod("thief")
}

func TestTenant_PodGetsNoLoopDevicesInANamespaceThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	s := begin(t)
	_, err := s.Client.CoreV1().Pods(s.Namespace).Create(t.Context(), kube.NewPod("asks", s.Home, kube.LoopSet), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.nfs.namespaces") {
		t.Errorf("a pod that asks for loop devices: %v", err)
	}
}

// The kernel shows the path of the file of a loop device as it was in the mount namespace of the process that attached it.
func TestTenant_ADeviceThatBearsThePathOfAVolumeIsNotTakenForIt(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.AllowServers() // so far a tenant must have got who attaches anything
	s.Claim("victim", "64Mi")
	s.Run("owner", kube.Mount("victim", "/data"), kube.Script("echo mine >/data/it; sync"))
	s.DeletePod("owner")
	image := imageOf(s, s.Volume("victim").Spec.CSI.VolumeHandle)

	lent(t, s, "attacker")
	shown := s.Exec("attacker", "sh", "-ec", fmt.Sprintf(`mkdir -p $(dirname %[1]s)
		dd if=/dev/zero of=%[1]s bs=1M count=64 2>/dev/null
		for device in $(echo $HOLDFAST_LOOPS | tr , '\n' | head -3); do
			losetup $device %[1]s
			cat /sys/block/$(basename $device)/loop/backing_file
		done`, image))
	if lines := strings.Fields(shown); len(lines) != 3 || lines[0] != image || lines[2] != image {
		t.Fatalf("the devices of the attacker show %q, not %s: this is not the attack", shown, image)
	}
	for i := range 2 {
		name := fmt.Sprint("owner-", i)
		if found := s.Run(name, kube.Mount("victim", "/data"), kube.Script("cat /data/it; echo more >>/data/more; sync; wc -l </data/more")); found != fmt.Sprintf("mine\n%d\n", i+1) {
			t.Errorf("the volume holds %q", found)
		}
		s.DeletePod(name)
	}

	devices := strings.TrimSpace(s.Exec("attacker", "sh", "-c", "echo $HOLDFAST_LOOPS"))
	s.DeletePod("attacker")
	lentAgain(t, s, devices)
}

// lent makes a pod with a set of loop devices, as soon as the policy of its namespace lets it.
func lent(t *testing.T, s *kube.Space, name string) {
	t.Helper()
	s.Eventually(t.Context(), "a pod being allowed loop devices", func(ctx context.Context) error {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Create(ctx, kube.NewPod(name, s.Home, kube.AsRoot, kube.LoopSet), metav1.CreateOptions{})
		return err
	})
	s.Ready(name)
}

// lentAgain asks for sets until it has the one of these devices, none of which may be attached any more.
func lentAgain(t *testing.T, s *kube.Space, devices string) {
	t.Helper()
	const sets = 8
	for i := range sets {
		name := fmt.Sprint("next-", i)
		lent(t, s, name)
		said := s.Exec(name, "sh", "-c", `echo $HOLDFAST_LOOPS
			for device in $(echo $HOLDFAST_LOOPS | tr , ' '); do cat /sys/block/$(basename $device)/loop/backing_file 2>/dev/null; done; true`)
		lent, attached, _ := strings.Cut(said, "\n")
		if attached != "" {
			t.Errorf("pod %s was allocated devices that are attached to %s", name, attached)
		}
		if lent == devices {
			return
		}
	}
	t.Errorf("of %d sets none is that of the pod that has ended", sets)
}

func TestTenant_ABlockVolumeStaysWhateverItsPodAsksOfItsDevice(t *testing.T) {
	t.Parallel()
	s := begin(t)
	write := func(pod, what string) {
		s.Exec(pod, "sh", "-ec", "echo "+what+" | dd of=/dev/it conv=fsync 2>/dev/null")
	}
	read := func(pod string) string { return s.Exec(pod, "sh", "-ec", "head -c 5 /dev/it") }
	s.Claim("first", "16Mi", kube.Block)
	s.Pod("first", kube.Device("first", "/dev/it"))
	s.Ready("first")
	write("first", "first")
	for range 3 {
		s.Exec("first", "sh", "-c", "losetup -d /dev/it; true") // as the kernel lets root of any container
	}
	s.Claim("other", "16Mi", kube.Block)
	s.Pod("other", kube.Device("other", "/dev/it"))
	s.Ready("other")
	write("other", "other")
	if got := read("first"); got != "first" {
		t.Errorf("the pod that requested the detach of its device reads %q", got)
	}
	s.DeletePod("first")
	s.Pod("first", kube.Device("first", "/dev/it"))
	s.Ready("first")
	for _, pod := range []string{"first", "other"} {
		if got := read(pod); got != pod {
			t.Errorf("the volume of pod %s holds %q", pod, got)
		}
	}
}

func TestTenant_SilentConnectionsBlockNoOtherClient(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Pod("idler")
	s.Pod("scraper")
	s.Ready("idler")
	s.Ready("scraper")
	pods, err := s.Client.CoreV1().Pods(kube.System).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("the controller's pods: %v, %v", pods.Items, err)
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.PodIP != "" })
	if i < 0 {
		t.Fatal("no pod of the controller has an address")
	}
	address := pods.Items[i].Status.PodIP
	held := s.Exec("idler", "sh", "-c", fmt.Sprintf(`for i in $(seq 400); do (sleep 600 | nc %s 9090) </dev/null >/dev/null 2>&1 & done
		for i in $(seq 60); do
			n=$(grep -c ":2382 01 " /proc/net/tcp); test $n -lt 50 || break; sleep 1
		done; test $n -ge 50 && echo held`, address))
	if held != "held\n" {
		t.Fatalf("the idle connections are not there: %q", held)
	}
	for range 3 {
		said := s.Exec("scraper", "sh", "-c", fmt.Sprintf(`timeout 60 wget -qO- http://%s:9090/metrics | grep -c '^holdfast_' || true`, address))
		if strings.TrimSpace(said) == "0" || said == "" {
			t.Errorf("while another holds connections, a scrape gets %q", said)
		}
	}
}

// Only volumes that are directories of a pool have contents that Holdfast walks. The worst trees are tried on the host, in
// backend/local; this is what a pod can make of one.
func TestTenant_DeepTreesAndHardLinksCostTheirOwnerAtMost(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := nodesWithClients(t)[0]
	server := serveDirectories(t, s, node)
	class := mounted(t, s)
	s.Claim("neighbour", "32Mi", byMany, kube.OfClass(class))
	s.Claim("hostile", "128Mi", byMany, kube.OfClass(class))
	s.Run("neighbour", kube.Mount("neighbour", "/data"), kube.OnNode(node), kube.Script("echo mine >/data/it; sync /data/it"))
	// A path is at most 4,096 characters, so trees of 1,900 levels are moved into one another, as many as the limit of inodes
	// lets a claim of this size have.
	said := s.Run("hostile", kube.Mount("hostile", "/data"), kube.OnNode(node), kube.Script(`set -e
		cd /data
		for tree in 1 2 3 4; do
			below=
			for level in $(seq 1900); do below=$below/d; done
			mkdir -p "/data/$tree$below"
		done
		for tree in 3 2 1; do
			cd /data/$tree
			for level in $(seq 1900); do cd d; done
			mv /data/$((tree + 1)) .
		done
		cd /data/1
		for level in $(seq 400); do cd d; done
		echo link >link
		for n in $(seq 3000); do ln link $n; done
		echo made`))
	if said != "made\n" {
		t.Fatalf("the pod says %q", said)
	}
	before := s.Ready(server)
	volume := s.Volume("hostile").Spec.CSI.VolumeHandle
	s.DeletePod("hostile")
	s.DeleteClaim("hostile")
	kube.AwaitNone(s, s.Holdfast("volumes"), kube.Named(volume), "the volume with the deep tree")

	serves := func() {
		t.Helper()
		said := s.Run("reader", kube.Mount("neighbour", "/data"), kube.OnNode(node), kube.Script("cat /data/it; echo more >/data/more; sync /data/more"))
		if said != "mine\n" {
			t.Errorf("the neighbour finds %q", said)
		}
		s.DeletePod("reader")
	}
	serves()
	if now := s.Ready(server); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount {
		t.Error("the server was started again")
	}
	s.DeletePod(server) // its pool opens again with what is left of the tree
	s.Ready(server)
	serves()
	s.Claim("another", "32Mi", byMany, kube.OfClass(class))
	s.Volume("another")
}
