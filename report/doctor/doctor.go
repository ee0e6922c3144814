// Package doctor looks at a cluster from outside for what commonly goes wrong with its storage, and says what to do. It
// changes nothing.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Level is how bad something is.
type Level string

const (
	Problem Level = "problem" // something does not work
	Warning Level = "warning" // something will surprise somebody
	Note    Level = "note"    // something is worth knowing
	Fine    Level = "fine"
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
		{"kinds", "Are the definitions of the kinds those of this release?", []string{definitions}, lookAtKinds, false},
		{"objects", "Can all objects of Holdfast be read?", []string{clusters, storageNodes, volumes, snapshots, servers, jobs, upgrades}, lookAtObjects, false},
		{"storagecluster", "Is there one StorageCluster, and is it as it should be?", []string{clusters}, lookAtCluster, false},
		{"namespace", "May privileged pods run in the namespace?", []string{namespaces, warnings}, lookAtNamespace, false},
		{"controller", "Does a controller run?", []string{pods}, lookAtController, false},
		{"secret", "Is there what the StorageCluster wants from its secret?", []string{clusters, secrets}, lookAtSecret, true},
		{"nodes", "Does an agent run on every node that is to store?", []string{clusters, nodes, pods, storageNodes}, lookAtNodes, true},
		{"kubelet", "Do the kubelets know the driver?", []string{clusters, nodes, pods, csiNodes, warnings}, lookAtKubelets, true},
		{"protection", "Are accounts and loop devices kept to what is theirs?", []string{clusters, servers, policies, pods}, lookAtProtection, true},
		{"driver", "Is the driver announced?", []string{clusters, drivers}, lookAtDriver, true},
		{"pools", "Can all pools be used, and have they room?", []string{storageNodes}, lookAtPools, false},
		{"servers", "Do all NFS servers serve?", []string{servers}, lookAtServers, false},
		{"shared volumes", "Can every node mount shared volumes?", []string{servers, storageNodes}, lookAtSharedVolumes, false},
		{"namespaces of servers", "May all NFS servers be where they are?", []string{clusters, servers}, lookAtNamespacesOfServers, true},
		{"network of servers", "Do only nodes reach NFS servers?", []string{servers, daemonSets}, lookAtNetwork, false},
		{"default class", "Is there one default StorageClass?", []string{classes}, lookAtDefaultClass, false},
		{"snapshots", "Are the snapshot kinds and a class of them there?", []string{clusters, definitions, snapshotClasses}, lookAtSnapshots, true},
		{"volumes", "Are all volumes and snapshots well?", []string{volumes, snapshots}, lookAtVolumes, false},
		{"inline volumes", "Are inline ephemeral volumes allowed where pods ask for them?", []string{clusters, allPods}, lookAtInlineVolumes, true},
		{"claims", "Are all claims bound, or is it known why not?", []string{claims, classes, pods, warnings}, lookAtClaims, false},
	}
}

// maxFindings of one check are told, so that what comes after them is read too.
const maxFindings = 20

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
		if more := len(found) - maxFindings; more > 0 {
			found = append(found[:maxFindings], note("", "", "and %d more", more))
		}
		for _, one := range found {
			one.Check = c.Name
			all = append(all, one)
		}
	}
	return all
}

func (c Check) hidden(f *Facts) (found []Finding) {
	for _, kind := range c.Needs {
		if err := f.Hidden[kind]; err != nil {
			found = append(found, Finding{Level: Note, What: fmt.Sprintf("not looked at, as the %s could not be read: %v", kind, err)})
		}
	}
	if len(found) == 0 && c.ofCluster && f.served() == nil {
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

// Text writes the findings for people.
func Text(out io.Writer, all []Finding) error {
	asks := map[string]string{}
	for _, c := range Checks() {
		asks[c.Name] = c.Asks
	}
	var b strings.Builder
	last := ""
	for _, f := range all {
		if f.Check != last {
			fmt.Fprintf(&b, "%s\n", asks[f.Check])
			last = f.Check
		}
		line := cmp.Or(f.Object, string(f.Level))
		if f.Object != "" && f.Level != Fine {
			line = string(f.Level) + ": " + f.Object
		}
		if f.Level == Fine {
			fmt.Fprintf(&b, "  %s\n", f.What)
			continue
		}
		fmt.Fprintf(&b, "  %s: %s\n", line, oneLine(f.What))
		if f.Do != "" {
			fmt.Fprintf(&b, "      %s\n", oneLine(f.Do))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func problem(object, do, format string, args ...any) Finding {
	return Finding{Level: Problem, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}

func warn(object, do, format string, args ...any) Finding {
	return Finding{Level: Warning, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}

func note(object, do, format string, args ...any) Finding {
	return Finding{Level: Note, Object: object, What: fmt.Sprintf(format, args...), Do: do}
}
