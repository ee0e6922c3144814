// Package doctor looks at a cluster from outside for what commonly goes wrong with its storage, and says what to do. It
// changes nothing.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/printable"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// The facts that are judged here.
type (
	Facts = facts.Facts
	Level = facts.Level
)

const (
	Problem = facts.Problem
	Warning = facts.Warning
	Note    = facts.Note
	Fine    = facts.Fine
)

// Finding is one thing that was seen.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Object string `json:"object,omitempty"` // what it is about
	What   string `json:"what"`
	Do     string `json:"do,omitempty"`
}

// Check looks for one kind of trouble in what was read.
type Check struct {
	Name  string
	Asks  string   // what it finds out
	Needs []string // kinds that must have been read
	look  func(f *Facts) []Finding
	// ofCluster: without a StorageCluster there is nothing to look at.
	ofCluster bool
}

// Checks are all there are, in the order in which to read what they find: a cause comes before what follows from it.
func Checks() []Check {
	return []Check{
		{"kinds", "Are the definitions of the kinds those of this release?", []string{facts.Definitions}, checkKinds, false},
		{"objects", "Can all objects of Holdfast be read?", []string{facts.Clusters, facts.StorageNodes, facts.Volumes, facts.Snapshots, facts.Servers, facts.Jobs, facts.Upgrades}, checkObjects, false},
		{"storagecluster", "Is there one StorageCluster, and is it as it should be?", []string{facts.Clusters}, checkCluster, false},
		{"namespace", "May privileged pods run in the namespace?", []string{facts.Namespaces, facts.Warnings}, checkNamespace, false},
		{"controller", "Does a controller run?", []string{facts.Pods}, checkController, false},
		{"secret", "Is there what the StorageCluster wants from its secret?", []string{facts.Clusters, facts.Secrets}, checkSecret, true},
		{"nodes", "Does an agent run on every node that is to store?", []string{facts.Clusters, facts.Nodes, facts.Pods, facts.StorageNodes}, checkNodes, true},
		{"kubelet", "Do the kubelets know the driver?", []string{facts.Clusters, facts.Nodes, facts.Pods, facts.CSINodes, facts.Warnings}, checkKubelets, true},
		{"protection", "Are accounts and loop devices kept to what is theirs?", []string{facts.Clusters, facts.Servers, facts.Policies, facts.Pods}, checkProtection, true},
		{"driver", "Is the driver announced?", []string{facts.Clusters, facts.Drivers}, checkDriver, true},
		{"pools", "Can all pools be used, and have they room?", []string{facts.StorageNodes}, checkPools, false},
		{"fences", "Is no node shut out of Ceph clusters?", []string{facts.StorageNodes}, checkFences, false},
		{"servers", "Do all NFS servers serve?", []string{facts.Servers}, checkServers, false},
		{"shared volumes", "Can every node mount shared volumes?", []string{facts.Servers, facts.StorageNodes}, checkSharedVolumes, false},
		{"Ceph volumes", "Can every node use volumes of Ceph pools?", []string{facts.StorageNodes}, checkCephVolumes, false},
		{"namespaces of servers", "May all NFS servers be where they are?", []string{facts.Clusters, facts.Servers}, checkNamespacesOfServers, true},
		{"network of servers", "Do only nodes reach NFS servers?", []string{facts.Servers}, checkNetwork, false},
		{"default class", "Is there one default StorageClass?", []string{facts.Classes}, checkDefaultClass, false},
		{"snapshots", "Are the snapshot kinds and a class of them there?", []string{facts.Clusters, facts.Definitions, facts.SnapshotClasses}, checkSnapshots, true},
		{"volumes", "Are all volumes and snapshots well?", []string{facts.Volumes, facts.Snapshots}, checkVolumes, false},
		{"inline volumes", "Are inline ephemeral volumes allowed where pods ask for them?", []string{facts.Clusters, facts.Pods}, checkInlineVolumes, true},
		{"claims", "Are all claims bound, or is it known why not?", []string{facts.Claims, facts.Classes, facts.Volumes, facts.Pods, facts.Warnings}, checkClaims, false},
	}
}

// Examine makes all checks. One that sees nothing says that all is fine.
func Examine(f *Facts) (all []Finding) {
	for _, c := range Checks() {
		found := c.hidden(f)
		if len(found) == 0 {
			found = c.look(f)
		}
		if len(found) == 0 {
			found = []Finding{{Level: Fine, What: "yes"}}
		}
		for _, one := range found {
			one.Check = c.Name
			all = append(all, one)
		}
	}
	return all
}

// OfClaim returns what Examine finds about a claim, NAMESPACE/NAME, and its volume.
func OfClaim(f *Facts, claim string) []Finding {
	object := "claim " + claim
	found := slices.DeleteFunc(Examine(f), func(one Finding) bool {
		unread := one.Check == "claims" && one.Level == Note && one.Object == ""
		return !unread && !strings.HasSuffix(one.Object, object)
	})
	if len(found) > 0 {
		return found
	}
	one := problem(object, "Name it as NAMESPACE/NAME.", "there is no such claim")
	for _, c := range f.Claims {
		if c.Namespace+"/"+c.Name == claim {
			one = note(object, "", "it is %s, and no check finds anything about it; claims of other drivers are not looked at", c.Status.Phase)
		}
	}
	one.Check = "claims"
	return []Finding{one}
}

func (c Check) hidden(f *Facts) (found []Finding) {
	for _, kind := range c.Needs {
		if err := f.Hidden[kind]; err != nil {
			found = append(found, Finding{Level: Note, What: fmt.Sprintf("not looked at, as the %s could not be read: %v", kind, err)})
		}
	}
	if len(found) == 0 && c.ofCluster && f.Served() == nil {
		found = append(found, Finding{Level: Note, What: "not looked at, as there is no StorageCluster that says what should be"})
	}
	return found
}

// Ill says whether a problem is among the findings.
func Ill(all []Finding) bool {
	for _, f := range all {
		if f.Level == Problem {
			return true
		}
	}
	return false
}

// maxFindings of one check are in the text, so that the next checks are read too.
const maxFindings = 20

// severity has the levels in the order in which the text has them.
var severity = []Level{Problem, Warning, Note, Fine}

// Text writes the findings for people: those of a check with the worst first, and not more than maxFindings.
func Text(out io.Writer, all []Finding) error {
	asks := map[string]string{}
	for _, c := range Checks() {
		asks[c.Name] = c.Asks
	}
	var b strings.Builder
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(f Finding) bool { return f.Check != all[0].Check })
		if n < 0 {
			n = len(all)
		}
		found := slices.Clone(all[:n])
		all = all[n:]
		slices.SortStableFunc(found, worstFirst)
		fmt.Fprintf(&b, "%s\n", asks[found[0].Check])
		for _, f := range found[:min(n, maxFindings)] {
			f.text(&b)
		}
		if n > maxFindings {
			fmt.Fprintf(&b, "  and %d more, which -o json has\n", n-maxFindings)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func worstFirst(a, b Finding) int {
	return cmp.Compare(slices.Index(severity, a.Level), slices.Index(severity, b.Level))
}

func (f *Finding) text(b *strings.Builder) {
	if f.Level == Fine {
		fmt.Fprintf(b, "  %s\n", f.What)
		return
	}
	line := string(f.Level)
	if f.Object != "" {
		line += ": " + f.Object
	}
	fmt.Fprintf(b, "  %s\n", printable.Line(line+": "+f.What))
	if f.Do != "" {
		fmt.Fprintf(b, "      %s\n", printable.Line(f.Do))
	}
}

func problem(object, do, format string, args ...any) Finding {
	return Finding{Level: Problem, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}

func warn(object, do, format string, args ...any) Finding {
	return Finding{Level: Warning, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}

func note(object, do, format string, args ...any) Finding {
	return Finding{Level: Note, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}
