package volumecopy

import (
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// contest is copies by name, the older first.
type contest struct {
	slots
	all map[string]*contender
}

func newContest(names ...string) *contest {
	c := &contest{slots: slots{held: map[types.UID]bool{}, tried: map[types.UID]try{}}, all: map[string]*contender{}}
	for i, name := range names {
		c.all[name] = &contender{Volume: &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start.Add(time.Duration(i) * time.Minute)),
		}}}
	}
	return c
}

// ask is whether each has a slot when all ask for one in this order.
func (c *contest) ask(names string) (have string, wanted bool) {
	for name := range strings.FieldsSeq(names) {
		var others []contender
		for _, other := range c.all {
			if other.Name != name {
				others = append(others, *other)
			}
		}
		waits, w := c.take(*c.all[name], others)
		if waits == "" {
			have = strings.TrimSpace(have + " " + name)
		}
		wanted = wanted || w
	}
	return have, wanted
}

func (c *contest) expect(t *testing.T, what, names, want string) {
	t.Helper()
	if have, _ := c.ask(names); have != want {
		t.Errorf("%s: of %s slots have %q, want %q", what, names, have, want)
	}
}

func TestSlots_AreOfTheOldestThatCanRun(t *testing.T) {
	c := newContest("a", "b", "c", "d", "e", "f")
	c.expect(t, "the youngest asks first", "f e d c b a", "d c b a")
	c.all["a"].down = "node n is down"
	c.expect(t, "one node is down", "f e a", "e")
	c.all["a"].down = ""
	c.expect(t, "it is back", "a f", "")
	delete(c.all, "b")
	c.expect(t, "one has ended", "f a", "a")
	c.giveBack("c", "no room")
	c.expect(t, "one cannot run", "c f", "f")
	delete(c.all, "d")
	c.expect(t, "it tries again", "c", "c")
	c.giveBack("c", "no room")
	c.all["g"] = newContest("g").all["g"]
	c.expect(t, "a younger one has not tried", "c g", "g")
}

func TestSlots_OneThatCannotRunIsBehindWhatTriedBefore(t *testing.T) {
	c := newContest("a", "b", "c", "d", "e", "f")
	for _, name := range []string{"a", "b", "c", "d"} {
		c.expect(t, "it tries", name, name)
		c.giveBack(types.UID(name), "no room")
	}
	c.expect(t, "those that have not tried, and then the first that has", "d c b a f e", "b a f e")
	if waits, _ := c.take(*c.all["c"], []contender{*c.all["a"], *c.all["b"], *c.all["e"], *c.all["f"]}); !strings.HasPrefix(waits, "4 volumes are copied at a time: 4 are") || !strings.HasSuffix(waits, "when it last tried, no room") {
		t.Errorf("it waits since %s", waits)
	}
}

func TestSlots_PodsHaveThemOfAnyProcess(t *testing.T) {
	c := newContest("a", "b", "c", "d", "e", "f")
	for _, name := range []string{"c", "d", "e", "f"} { // another process made them, and was killed
		c.all[name].pod = true
	}
	c.expect(t, "with pods", "a b c d e f", "c d e f")
	if _, wanted := c.ask("f"); !wanted {
		t.Error("that others wait is not said")
	}
	c.giveBack("f", "no room")
	c.expect(t, "while its pod goes", "f a", "")
	c.all["f"].pod = false
	c.expect(t, "when it is gone", "f b a", "a")
	delete(c.all, "b")
	delete(c.all, "f")
	if _, wanted := c.ask("a c d e"); wanted {
		t.Error("others are said to wait")
	}
}

func TestSlots_NamespacesHaveTurns(t *testing.T) {
	c := newContest("a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2", "c1")
	for name, contender := range c.all {
		contender.Spec.ClaimRef = &v1beta1.NamespacedReference{Namespace: name[:1], Name: name}
	}
	c.expect(t, "one namespace has many", "a6 a5 a4 a3 a2 a1 b2 b1 c1", "a2 a1 b1 c1")
	delete(c.all, "a1")
	c.expect(t, "one has ended", "a6 a5 a4 a3 b2", "a3")
	delete(c.all, "b1")
	c.expect(t, "that of another has ended", "a6 a5 a4 b2", "b2")
	c.giveBack("c1", "no room")
	c.expect(t, "it cannot run", "a6 a5 a4 c1", "c1")
	c.giveBack("c1", "no room")
	c.expect(t, "each try has cost it a turn", "c1 a6 a5 a4", "a4")
}

func TestSlots_NamespaceThatHasNoneGetsOneBesideThose(t *testing.T) {
	c := newContest("a1", "a2", "a3", "a4", "a5")
	later := newContest("b1", "b2", "c1", "d1", "e1", "f1")
	for _, all := range []map[string]*contender{c.all, later.all} {
		for name, contender := range all {
			contender.Spec.ClaimRef = &v1beta1.NamespacedReference{Namespace: name[:1], Name: name}
		}
	}
	c.expect(t, "one namespace has all", "a5 a4 a3 a2 a1", "a4 a3 a2 a1")
	maps.Copy(c.all, later.all)
	c.expect(t, "then others come", "a5 f1 e1 d1 c1 b2 b1", "e1 d1 c1 b1")
	delete(c.all, "a1")
	c.expect(t, "one has ended", "a5 b2 f1", "f1")
	c.giveBack("c1", "no room")
	c.expect(t, "one that has tried is still the first of its namespace", "a5 b2 c1", "c1")
}
