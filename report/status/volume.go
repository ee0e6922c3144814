package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/printable"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// Describe writes all that is known of a volume, which is named by itself or by its claim, NAMESPACE/NAME.
func Describe(ctx context.Context, out io.Writer, c facts.Clients, f *facts.Facts, name string) error {
	named := slices.DeleteFunc(slices.Clone(f.Volumes), func(v *v1beta1.Volume) bool { return v.Name != name && v.Spec.ClaimRef.String() != name })
	switch len(named) {
	case 0:
		return fmt.Errorf("there is no volume, and no claim with one, of the name %s: holdfast volumes list shows all, and holdfast volumes trash the deleted ones", printable.Line(name))
	case 1:
	default: // such as one that was kept when its claim was deleted
		return fmt.Errorf("there are %d volumes of claim %s: give the name of one, such as %s or %s", len(named), printable.Line(name), named[0].Name, named[1].Name)
	}
	d := &description{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	d.volume(named[0], f)
	d.users(ctx, c, named[0])
	d.events(named[0], f)
	return d.Flush()
}

type description struct{ *tabwriter.Writer }

// line leaves out what is not known.
func (d *description) line(what string, value any) {
	if text := printable.Line(fmt.Sprint(value)); text != "" {
		fmt.Fprintf(d, "%s:\t%s\n", what, text)
	}
}

func (d *description) volume(v *v1beta1.Volume, f *facts.Facts) {
	is := &v.Status
	d.line("Name", v.Name)
	d.line("Claim", v.Spec.ClaimRef)
	d.line("Node", v.Spec.Node)
	d.line("Pool", v.PoolName())
	d.line("Where", place(is.Access))
	if is.Size != nil {
		d.line("Size", is.Size)
	}
	if is.Used != nil {
		d.line("Used", size(is.Used.Value())+" of its pool")
	}
	d.line("Mode", cmp.Or(is.Mode, v.Spec.Mode))
	d.line("File system", cmp.Or(is.FSType, string(v.Spec.FSType)))
	d.line("Provisioning", cmp.Or(is.Provisioning, v.Spec.Provisioning))
	if source := cmp.Or(is.SourceRef, v.Spec.SourceRef); source != nil {
		d.line("Made from", string(source.Kind)+" "+source.Name)
	}
	d.line("On node loss", v.Spec.NodeLossPolicy())
	if is.CreationTime != nil {
		d.line("Created", is.CreationTime.UTC().Format(time.RFC3339))
	}
	d.line("Phase", cmp.Or(is.Phase, v1beta1.PhasePending))
	for _, c := range is.Conditions {
		d.line(c.Type, strings.TrimSuffix(fmt.Sprintf("%s, %s: %s", c.Status, c.Reason, c.Message), ": "))
	}
	if is.Error != nil {
		d.line("Last error", is.Error.Message)
	}
	for _, s := range f.Snapshots {
		if s.Spec.SourceRef.Name == v.Name {
			d.line("Snapshot", s.Name)
		}
	}
}

// place is where an administrator finds the volume.
func place(a *v1beta1.VolumeAccess) string {
	switch {
	case a == nil:
		return ""
	case a.NFS != nil:
		return a.NFS.Server + ":" + a.NFS.Path
	case a.RBD != nil:
		return "image " + a.RBD.Pool + "/" + a.RBD.Image
	case a.CephFS != nil:
		return a.CephFS.FileSystem + ":" + a.CephFS.Path
	}
	return a.Image + a.Directory
}

// users are the pods with the claim.
func (d *description) users(ctx context.Context, c facts.Clients, v *v1beta1.Volume) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return
	}
	err := kube.Each(ctx, c.Kubernetes.CoreV1().Pods(ref.Namespace).List, metav1.ListOptions{}, func(p *core.Pod) {
		for _, has := range p.Spec.Volumes {
			if has.PersistentVolumeClaim != nil && has.PersistentVolumeClaim.ClaimName == ref.Name {
				d.line("Pod", fmt.Sprintf("%s, %s on %s", p.Name, p.Status.Phase, cmp.Or(p.Spec.NodeName, "no node yet")))
			}
		}
	})
	if err != nil {
		d.line("Pod", fmt.Sprintf("not known: %v", err))
	}
}

func (d *description) events(v *v1beta1.Volume, f *facts.Facts) {
	all := slices.Clone(f.Warnings)
	slices.SortStableFunc(all, func(a, b *core.Event) int { return kube.LastOccurrence(a).Compare(kube.LastOccurrence(b)) })
	for _, e := range all {
		about := e.InvolvedObject
		if about.Kind == "PersistentVolumeClaim" && about.Namespace+"/"+about.Name == v.Spec.ClaimRef.String() || about.Kind == "Volume" && about.Name == v.Name {
			d.line("Warning", fmt.Sprintf("%s, %s: %s", kube.LastOccurrence(e).UTC().Format(time.RFC3339), e.Reason, e.Message))
		}
	}
}
