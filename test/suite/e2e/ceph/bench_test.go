package ceph

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/measure"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// The rounds are few: a second kernel on a machine with a whole Ceph is no disk to be measured absolutely, and what counts
// is the ratio of neighbours.
const (
	benchRounds = 5
	benchSize   = 256 << 20
)

// BenchmarkVolume measures volumes against the same Ceph used directly, in turns: an image against one that was mapped by
// hand through sysfs and against rbd bench, and a subvolume against one that was mounted by hand. It reports the medians of
// the ratios.
//
//	go test -run '^$' -bench Volume -benchtime 1x -timeout 1h ./test/suite/e2e/ceph
func BenchmarkVolume(b *testing.B) {
	s := begin(b)
	one, _ := withClients(b)
	s.AllowPrivileged()
	s.Claim("disk", "1Gi", kube.OfClass(imageClass), kube.Block)
	s.Claim("files", "1Gi", kube.OfClass(fileClass))
	s.Pod("bench", kube.Device("disk", "/dev/disk"), kube.Mount("files", "/files"), kube.OnNode(one), ofTheHost)
	n := &node{s, s.Ready("bench")}
	byHand := n.mapImage(b)
	for name, ways := range map[string][]func(measure.Load) (float64, error){
		"rbd":    {n.fio(n.deviceOf("/dev/disk")), n.fio(byHand), rbdBench(b)},
		"cephfs": {n.fio(n.mountOf("files") + "/bench"), n.fio(n.mountSubvolume(b) + "/bench")},
	} {
		for _, l := range measure.Loads[:4] {
			b.Run(name+"/"+l.Name, func(b *testing.B) {
				for range b.N {
					speeds := check.Got(measure.InTurns(benchRounds, len(ways), func(way, _ int) (float64, error) { return ways[way](l) }))(b)
					b.ReportMetric(0, "ns/op")
					for i, unit := range []string{"volume/by-hand", "volume/rbd-bench"}[:len(ways)-1] {
						b.ReportMetric(measure.Ratio(speeds[0], speeds[i+1]), unit)
					}
				}
			})
		}
	}
}

// BenchmarkClaim measures claims by holdfast bench against what an administrator makes directly in the same Ceph: an image
// by rbd create, and a subvolume by ceph fs subvolume create. The class of the nodes is there to compare with.
//
//	go test -run '^$' -bench Claim -benchtime 1x -timeout 1h ./test/suite/e2e/ceph
func BenchmarkClaim(b *testing.B) {
	begin(b)
	one, _ := withClients(b)
	const samples = 10
	image := func(i int) {
		onCeph(b, "rbd", "create", "--size", "64M", fmt.Sprintf("%s/direct-%d", images, i))
		b.Cleanup(func() { onCeph(b, "rbd", "rm", fmt.Sprintf("%s/direct-%d", images, i)) })
	}
	subvolume := func(i int) {
		onCeph(b, "ceph", "fs", "subvolume", "create", ceph.FileSystem, fmt.Sprint("direct-", i), "--size", "67108864")
		b.Cleanup(func() { onCeph(b, "ceph", "fs", "subvolume", "rm", ceph.FileSystem, fmt.Sprint("direct-", i)) })
	}
	for class, direct := range map[string]func(i int){imageClass: image, fileClass: subvolume, usualClass.Name: nil} {
		b.Run(class, func(b *testing.B) {
			for range b.N {
				var took []float64
				for i := range samples {
					if direct != nil {
						start := time.Now()
						direct(i)
						took = append(took, time.Since(start).Seconds())
					}
				}
				b.ReportMetric(0, "ns/op")
				for _, m := range benched(b, class, one, samples) {
					if direct != nil && m.Measure == bench.ClaimBound {
						b.ReportMetric(float64(m.P50)/bench.Percentile(took, 50), "bound/direct")
					}
					if m.Ratio != nil {
						b.ReportMetric(*m.Ratio, string(m.Measure)+"/plain-pod")
					}
				}
			}
		})
	}
}

// benched are the measurements of one volume at a time.
func benched(b *testing.B, class, node string, samples int) []bench.Measurement {
	b.Helper()
	cmd := cluster.Command(b.Context(), cluster.HoldfastProgram(b), "bench", "--storage-class", class, "--node", node, "--at-once", "1", "--repeat", strconv.Itoa(samples), "--output", "json")
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	var result bench.Result
	if err := json.Unmarshal(out, &result); err != nil || !result.Complete {
		b.Fatalf("%v: %s", err, out)
	}
	return result.Measurements
}

// ofTheHost lets a pod run the programs of its node.
func ofTheHost(p *corev1.Pod) {
	kube.AsRoot(p)
	c := &p.Spec.Containers[0]
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "host", MountPath: "/host"})
}

// node is what the pod of the benchmark is on.
type node struct {
	*kube.Space
	pod *corev1.Pod
}

func (n *node) run(script string) string {
	return strings.TrimSpace(n.Exec(n.pod.Name, "sh", "-ec", script))
}

func (n *node) atEnd(b *testing.B, script string) {
	b.Helper()
	b.Cleanup(func() {
		if out, err := n.ExecIn(context.WithoutCancel(b.Context()), n.Namespace, n.pod.Name, "", "sh", "-c", script); err != nil {
			b.Error(err, out)
		}
	})
}

// deviceOf is the node's own name of a device of the pod.
func (n *node) deviceOf(path string) string {
	return "/dev/" + filepath.Base(n.run("readlink /sys/dev/block/$((0x$(stat -c %t "+path+"))):$((0x$(stat -c %T "+path+")))"))
}

// mountOf is where the kubelet has put a volume of the pod.
func (n *node) mountOf(claim string) string {
	return fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/%s/mount", n.pod.UID, n.Volume(claim).Name)
}

// mapImage maps an image as a volume is mapped: by the messenger v2 with checksums, and with the features of rbd create, which
// are those of volumes.
func (n *node) mapImage(b *testing.B) (device string) {
	b.Helper()
	const image = "by-hand"
	onCeph(b, "rbd", "create", "--size", "1G", images+"/"+image)
	b.Cleanup(func() { onCeph(b, "rbd", "rm", images+"/"+image) })
	n.run(fmt.Sprintf("echo '%s name=admin,secret=%s,ms_mode=prefer-crc %s %s -' >/host/sys/bus/rbd/add_single_major", storage.Monitor, adminKey(b), images, image))
	id := n.run("for d in /sys/bus/rbd/devices/*; do test $(cat $d/name) = " + image + " && basename $d; done || true")
	n.atEnd(b, "echo "+id+" >/host/sys/bus/rbd/remove_single_major")
	return "/dev/rbd" + id
}

func (n *node) mountSubvolume(b *testing.B) (dir string) {
	b.Helper()
	dir = "/tmp/by-hand"
	onCeph(b, "ceph", "fs", "subvolume", "create", ceph.FileSystem, "by-hand")
	b.Cleanup(func() { onCeph(b, "ceph", "fs", "subvolume", "rm", ceph.FileSystem, "by-hand") })
	path := strings.TrimSpace(onCeph(b, "ceph", "fs", "subvolume", "getpath", ceph.FileSystem, "by-hand"))
	n.run(fmt.Sprintf("mkdir -p /host%s; mount -t ceph -o name=admin,secret=%s,mds_namespace=%s,ms_mode=prefer-crc %s:%s /host%s", dir, adminKey(b), ceph.FileSystem, storage.Monitor, path, dir))
	n.atEnd(b, "umount /host"+dir)
	return dir
}

// fio measures a device or a file from the node. It is written once before anything is read.
func (n *node) fio(path string) func(measure.Load) (float64, error) {
	on := func(l measure.Load, runtime time.Duration) string {
		return "chroot /host " + strings.Join(l.Command(path, benchSize, runtime), " ")
	}
	n.run(on(measure.Loads[1], 0) + " >/dev/null")
	return func(l measure.Load) (float64, error) {
		return measure.Speed(n.run(on(l, 3*time.Second) + " --time_based"))
	}
}

// rbdBench measures what the library does on the machine itself, beside the daemons.
func rbdBench(b *testing.B) func(measure.Load) (float64, error) {
	return func(l measure.Load) (float64, error) {
		b.Helper()
		total := map[string]string{"1m": "256M", "4k": "16M"}[l.Block]
		io, random := strings.CutPrefix(l.RW, "rand")
		pattern := map[bool]string{false: "seq", true: "rand"}[random]
		said := onCeph(b, "rbd", "bench", "--io-type", io, "--io-size", strings.ToUpper(l.Block), "--io-threads", "32",
			"--io-total", total, "--io-pattern", pattern, images+"/by-hand")
		_, rate, _ := strings.Cut(said, "bytes/sec:")
		number, unit, _ := strings.Cut(strings.TrimSpace(strings.SplitN(rate, "\n", 2)[0]), " ")
		bytes, err := strconv.ParseFloat(number, 64)
		scale := map[string]float64{"B/s": 1, "KiB/s": 1 << 10, "MiB/s": 1 << 20, "GiB/s": 1 << 30}[unit]
		if err != nil || scale == 0 {
			return 0, fmt.Errorf("rbd bench says %q: %w", said, err)
		}
		return bytes * scale, nil
	}
}

func onCeph(b *testing.B, name string, args ...string) string {
	b.Helper()
	return check.Got(storage.Command(context.WithoutCancel(b.Context()), name, args...))(b)
}

func adminKey(b *testing.B) string {
	b.Helper()
	return check.Got(storage.Key(b.Context(), "admin"))(b)
}
