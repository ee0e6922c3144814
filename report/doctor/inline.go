package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// allPods are those of every namespace, which not everybody may read.
const allPods = "pods of all namespaces"

// inlineUsers reads which pods have inline ephemeral volumes where none are allowed.
func (g *gathering) inlineUsers(ctx context.Context) {
	if c := g.served(); c == nil || !g.withCSI() || c.Spec.CSI.Ephemeral != nil {
		return
	}
	for options := (metav1.ListOptions{Limit: 500}); ; {
		list, err := g.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if !g.read(allPods, err) {
			return
		}
		for i := range list.Items {
			p := &list.Items[i]
			over := p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
			if !over && slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.CSI != nil && v.CSI.Driver == g.Driver }) {
				g.InlineUsers = append(g.InlineUsers, p.Namespace+"/"+p.Name)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
	}
}

func lookAtInlineVolumes(f *Facts) []Finding {
	c := f.served()
	if len(f.InlineUsers) == 0 || c == nil {
		return nil
	}
	slices.Sort(f.InlineUsers)
	some := f.InlineUsers[:min(len(f.InlineUsers), 5)]
	return []Finding{warn("", fmt.Sprintf(`Allow them: kubectl patch storagecluster %s --type=merge -p '{"spec":{"csi":{"ephemeral":{"pools":["POOL"],"maxSize":"10Gi"}}}}'. Or give these pods generic ephemeral volumes.`, c.Name),
		"%d pods ask for inline ephemeral volumes, which spec.csi.ephemeral does not allow: those that run keep theirs, others do not start: %s", len(f.InlineUsers), strings.Join(some, ", "))}
}
