package doctor

import (
	"context"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"
)

// limits reads which policies there are.
func (g *gathering) limits(ctx context.Context) {
	ours := metav1.ListOptions{LabelSelector: v1.PartOfLabel + "=" + v1.AppName}
	kinds := g.Kubernetes.AdmissionregistrationV1()
	list, err := kinds.ValidatingAdmissionPolicies().List(ctx, ours)
	if g.NoPolicies = apierrors.IsNotFound(err); !g.read(policies, err) {
		return
	}
	for i := range list.Items {
		g.Policies = append(g.Policies, policyKind+" "+list.Items[i].Name)
	}
	if list, err := kinds.ValidatingAdmissionPolicyBindings().List(ctx, ours); g.read(policies, err) {
		for i := range list.Items {
			g.Policies = append(g.Policies, bindingKind+" "+list.Items[i].Name)
		}
	}
}

const page = 500

// borrowers reads the pods of all namespaces, of which there may be many, and keeps few.
func (g *gathering) borrowers(ctx context.Context) {
	for options := (metav1.ListOptions{Limit: page}); ; {
		list, err := g.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if !g.read(pods, err) {
			return
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed && slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), borrows) {
				g.Borrowers = append(g.Borrowers, p.Namespace+"/"+p.Name)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return
		}
	}
}

const loopSet core.ResourceName = "holdfast.dev/loop-set"

func borrows(c core.Container) bool {
	_, has := c.Resources.Limits[loopSet]
	return has
}

// lookAtProtection looks for what no role can keep anybody from.
func lookAtProtection(f *Facts) (found []Finding) {
	if f.NoPolicies {
		return append([]Finding{problem("", "", "%s", render.WithoutPolicies)}, lookAtBorrowers(f)...)
	}
	wanted := render.Limits()
	if len(f.Servers) > 0 {
		wanted = append(wanted, render.ServerLimits()...)
	}
	for _, name := range wanted {
		for _, kind := range []string{policyKind, bindingKind} {
			if object := kind + " " + name; !slices.Contains(f.Policies, object) {
				found = append(found, problem(object, "See the condition Protected of the StorageCluster, and whether a controller runs.",
					"it is missing, so an account may write what is not its own, no data is deleted on request, or no loop devices are lent"))
			}
		}
	}
	return append(found, lookAtBorrowers(f)...)
}

// lookAtBorrowers names pods that came before they would have been refused.
func lookAtBorrowers(f *Facts) (found []Finding) {
	allowed := append([]string{f.Namespace}, f.served().Spec.NFS.Namespaces...)
	for i := range f.StorageNodes { // a server that has served gets them, allowed or not
		if namespace, _, is := v1.ParseNFSNode(f.StorageNodes[i].Name); is {
			allowed = append(allowed, namespace)
		}
	}
	for _, pod := range f.Borrowers {
		namespace, name, _ := strings.Cut(pod, "/")
		if slices.Contains(allowed, namespace) {
			continue
		}
		found = append(found, problem("pod "+pod, "Delete it with kubectl -n "+namespace+" delete pod "+name+", or, if it is an NFS server that is to stay, add "+namespace+" to spec.nfs.namespaces of the StorageCluster.",
			"it has loop devices of its node (%s), or waits for some, and its namespace is not allowed them: it came before that was refused, and may read and write volumes of others on its node", loopSet))
	}
	return found
}
