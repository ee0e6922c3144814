package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// nothingLeft waits until all volumes and snapshots have an owner, each node has those of its objects and no others but
// in its trash, and has promised the sizes of all these and no more. gone are volumes that were there.
func nothingLeft(t *testing.T, s *kube.Space, gone []string) {
	t.Helper()
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumeClaims(s.Namespace), metav1.ListOptions{}, "the claims")
	noVolumes(s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.Eventually(ctx, "nothing to be left", func(context.Context) error {
		ctx := t.Context() // or the last answer would be that time is over
		held, err := holdings(ctx, s)
		if err != nil {
			return err
		}
		var errs []error
		for _, node := range s.Nodes(t) {
			h := held[node]
			n, err := s.Holdfast("storagenodes").Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			said := s.OnHost(node, "cd "+s.Pools()+"/default\n"+look)
			if promised, trash := promisedBy(n), inTrash(said); promised != h.bytes+trash {
				errs = append(errs, fmt.Errorf("%s has promised %d bytes, its objects have %d and its trash %d", node, promised, h.bytes, trash))
			}
			for _, stray := range h.strays(s.Pools(), gone, said) {
				errs = append(errs, fmt.Errorf("on %s: %s", node, stray))
			}
		}
		return errors.Join(errs...)
	})
}

func promisedBy(node *unstructured.Unstructured) (sum int64) {
	pools, _, _ := unstructured.NestedSlice(node.Object, "status", "pools")
	for _, p := range pools {
		pool, _ := p.(map[string]any)
		promised, _, _ := unstructured.NestedString(pool, "promised")
		quantity, err := resource.ParseQuantity(promised)
		if err != nil {
			return -1
		}
		sum += quantity.Value()
	}
	return sum
}

// holding is what there are objects of on a node.
type holding struct {
	volumes, snapshots map[string]bool
	bytes              int64 // that are promised to them
}

// holdings are those of each node. Objects without an owner are an error.
func holdings(ctx context.Context, s *kube.Space) (map[string]holding, error) {
	all := map[string]holding{}
	for _, kind := range []struct{ resource, bytes string }{{"volumes", "size"}, {"snapshots", "used"}} {
		wanted, err := handles(ctx, s, kind.resource)
		if err != nil {
			return nil, err
		}
		objects, err := s.Holdfast(kind.resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range objects.Items {
			if !wanted[o.GetName()] {
				return nil, fmt.Errorf("%s %s has no owner any more", kind.resource, o.GetName())
			}
			node, _, _ := unstructured.NestedString(o.Object, "spec", "node")
			said, _, _ := unstructured.NestedString(o.Object, "status", kind.bytes)
			bytes, err := resource.ParseQuantity(said)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", kind.bytes, o.GetName(), err)
			}
			h := all[node]
			if h.volumes == nil {
				h.volumes, h.snapshots = map[string]bool{}, map[string]bool{}
			}
			h.bytes += bytes.Value()
			if kind.resource == "volumes" {
				h.volumes[o.GetName()] = true
			} else {
				h.snapshots[o.GetName()] = true
			}
			all[node] = h
		}
	}
	return all, nil
}

// handles are the volumes, or the snapshots, that Kubernetes knows of.
func handles(ctx context.Context, s *kube.Space, resource string) (map[string]bool, error) {
	known := map[string]bool{}
	if resource == "snapshots" {
		contents, err := s.SnapshotContents().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, c := range contents.Items {
			handle, _, _ := unstructured.NestedString(c.Object, "status", "snapshotHandle")
			known[handle] = true
		}
		return known, nil
	}
	volumes, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		if v.Spec.CSI != nil {
			known[v.Spec.CSI.VolumeHandle] = true
		}
	}
	return known, nil
}

// look says what is in a pool, what its trash was promised, what is attached, and what is mounted.
const look = `
	cat .trash/*/meta.json 2>/dev/null | sed -n 's/^ *"charge": *\([0-9]*\).*/trash \1/p'
	find volumes snapshots .tmp .trash | sed -n '/\//s/^/disk /p'
	for file in /sys/block/loop*/loop/backing_file; do
		device=${file#/sys/block/}
		echo "loop /dev/${device%%/*} $(cat $file 2>/dev/null)"
	done
	sed 's/^/mount /' /proc/self/mountinfo`

// inTrash is what the trash was promised, of what look says.
func inTrash(said string) (sum int64) {
	for line := range strings.Lines(said) {
		var bytes int64
		if _, err := fmt.Sscanf(line, "trash %d", &bytes); err == nil {
			sum += bytes
		}
	}
	return sum
}

// strays are the lines of what look says that are of nothing that is held, and what is held and missing. What was attached
// or mounted in a pod that is gone may show no path of the pools, but volumes that are gone are known.
func (h holding) strays(pools string, gone []string, said string) (strays []string) {
	missing, devices := map[string]bool{}, map[string]bool{}
	for id := range h.volumes {
		missing[id] = true
	}
	for line := range strings.Lines(said) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Fields(line)
		ours, held := false, false
		switch {
		case len(fields) < 2:
		case fields[0] == "disk":
			kind, rest, _ := strings.Cut(fields[1], "/")
			id, file, _ := strings.Cut(rest, "/")
			trash := kind == ".trash" && strings.HasPrefix(id, "volumes.")
			ours, held = true, trash || kind == "volumes" && h.volumes[id] || kind == "snapshots" && h.snapshots[id]
			if kind == "volumes" && file == "image" {
				delete(missing, id)
			}
		case fields[0] == "loop" && len(fields) > 2:
			ours, held = strings.HasPrefix(fields[2], pools), h.volumes[path.Base(path.Dir(fields[2]))]
			devices[fields[1]] = ours && held
		case fields[0] == "mount" && len(fields) > 5:
			target, source := fields[5], fields[len(fields)-2]
			ours = strings.HasPrefix(target, pools+"/default/") || strings.Contains(target, "/kubernetes.io/csi/") || strings.Contains(target, "/kubernetes.io~csi/")
			held = devices[source] || slices.ContainsFunc(strings.Split(line, "/"), func(part string) bool { return h.volumes[part] })
		}
		ours = ours || slices.ContainsFunc(gone, func(id string) bool { return strings.Contains(line, id) })
		if ours && !held {
			strays = append(strays, line)
		}
	}
	for id := range missing {
		strays = append(strays, "there is no image of volume "+id)
	}
	return strays
}
