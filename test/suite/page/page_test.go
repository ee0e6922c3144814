package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

var views = []string{"overview", "pools", "volumes", "snapshots", "servers", "events"}

// enter logs in as a person does, when the browser asks.
func enter(t *testing.T, w *world, query string) *tab {
	t.Helper()
	p := newTab(t)
	p.password = password
	p.open(w.url + query)
	return p
}

// sound fails the test where something is wider than the screen, requested elsewhere, or reported by the browser.
func (p *tab) sound(w *world, where string) {
	p.Helper()
	if wide := run[string](p, `(() => {
		const width = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= width) return '';
		const far = [...document.querySelectorAll('body *')].find((e) => e.getBoundingClientRect().right > width + 1 && !e.closest('nav'));
		return far ? far.outerHTML.slice(0, 200) : 'something';
	})()`); wide != "" {
		p.Errorf("%s: the page scrolls sideways because of %s", where, wide)
	}
	p.mu.Lock()
	for _, url := range p.requests {
		if !strings.HasPrefix(url, w.url) {
			p.Errorf("%s: the page requested %s", where, url)
		}
	}
	p.mu.Unlock()
	p.faultless()
}

// everywhere shows each view on a screen and, dark, on a phone.
func (p *tab) everywhere(w *world, check func(where string)) {
	p.Helper()
	for _, view := range views {
		p.size(1440, 900, false)
		p.dark(false)
		p.open(w.url + "?view=" + view)
		p.sound(w, view)
		check(view)
		p.size(375, 812, true)
		p.dark(true)
		p.sound(w, view+" on a phone")
		check(view + ", dark and on a phone")
	}
}

func TestPage_OfAnEmptyClusterSaysWhatWillBeThere(t *testing.T) {
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, nil)
	w.serve()
	p := enter(t, w, "")
	p.until("the headline", `document.querySelector('.headline').innerText.includes('No node stores yet')`)
	p.screenshot("empty")
	p.accessible("empty")
	p.sound(w, "empty")
}

func TestPage_OfAHealthyCluster(t *testing.T) {
	w := newWorld(t)
	w.healthy()
	w.serve()
	p := newTab(t)
	p.size(1440, 722, false) // of docs/images/page.png, which is this picture
	p.password = password
	p.open(w.url)
	p.until("the headline", `document.querySelector('.headline').innerText.includes('All is well')`)
	p.until("the work", `['pull-images', '3 of 4 nodes', 'ci/cache-3', 'from 50Gi to 100Gi'].every((text) => document.body.textContent.includes(text))`)
	p.until("a bar says what it shows", `[...document.querySelectorAll('.bar')].some((b) => b.getAttribute('aria-label') === 'Pool fast of rack1-b: 371 GiB used, 402 GiB promised, 78 GiB free, of 480 GiB')`)
	p.screenshot("healthy")
	p.dark(true)
	p.screenshot("dark")
	p.dark(false)
	for _, view := range views[1:] {
		p.open(w.url + "?view=" + view)
		p.screenshot("healthy-" + view)
	}
	p.sound(w, "healthy")
}

func TestPage_OfALostNodeSaysWhatIsWrongAndIsAccessible(t *testing.T) {
	w := newWorld(t)
	w.lost()
	w.serve()
	p := enter(t, w, "")
	p.until("the headline", `document.querySelector('.headline').innerText.includes('problems')`)
	p.until("what is wrong", `['Node rack2-b', 'has not renewed its Lease', 'volumes unreachable', 'found 3 errors', 'ProvisioningFailed', '×14'].every((text) => document.body.textContent.includes(text))`)
	p.picture("lost", true)
	// What is said leads to what it is about.
	run[any](p, `[...document.querySelectorAll('.finding a')].find((a) => a.textContent.includes('unreachable')).click()`)
	p.until("the volumes out of reach", `document.querySelectorAll('tbody tr').length > 5 && [...document.querySelectorAll('tbody tr')].every((r) => r.innerText.includes('Unreachable'))`)
	p.screenshot("lost-volumes")
	p.size(375, 812, true)
	p.open(w.url)
	p.picture("phone", true)
	p.open(w.url + "?view=volumes&sort=-phase")
	p.screenshot("phone-volumes")
	p.everywhere(w, p.accessible)
}

func TestPage_ShowsNothingWithoutThePassword(t *testing.T) {
	w := newWorld(t)
	w.healthy()
	w.serve()
	p := newTab(t)
	p.do("Page.navigate", object{"url": w.url})
	p.until("the refusal", `document.body !== null && document.body.innerText.includes('give the user and the password')`)
	if text := run[string](p, "document.documentElement.innerText"); strings.Contains(text, "rack1") {
		t.Errorf("the page says %s", text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == 0 || len(p.requests) > 2 { // the page and its icon
		t.Errorf("asked %d times; the browser requested %v", p.asked, p.requests)
	}
}

// hostile are names and texts that an object may have where nothing validates them, or that only look like others.
var hostile = []string{
	`<img src=x onerror="window.struck=1">`, `"><script>window.struck=1</script>`, `' onmouseover='window.struck=1`, `javascript:window.struck=1`,
	"abc\u202egnp.exe", "zero\u200bwidth", "line\nbreak\x00\x1b[31m", strings.Repeat("w", 253), strings.Repeat("м", 253), "&lt;b&gt;", "${struck}", "../../etc/passwd", `{"constructor":{}}`, "__proto__", "مرحبا",
}

func TestHostileNames_ExecuteNothingAndBreakNoLayout(t *testing.T) {
	w := newWorld(t)
	var nodes []v1beta1.NodeHealth
	for _, name := range hostile {
		nodes = append(nodes, v1beta1.NodeHealth{Name: name, Message: name, Version: name})
	}
	w.cluster(v1beta1.ClusterDegraded, nodes, condition(v1beta1.DegradedCondition, metav1.ConditionTrue, "Hostile", strings.Join(hostile, " ")))
	for i, name := range hostile {
		p := pool(name, 100, 40, 30)
		p.Path, p.Message, p.Engine = name, name, v1beta1.Engine(name)
		w.nodeOf(fmt.Sprint("n", i), v1beta1.StorageNodeStatus{
			Version: name, Pools: []v1beta1.Pool{p}, Conditions: []metav1.Condition{condition(v1beta1.ReadyCondition, metav1.ConditionFalse, name, name)},
		})
		w.volume(fmt.Sprint("v", i), "a/"+name, name, name, gib, gib/2, func(v *v1beta1.Volume) {
			v.Status.Phase, v.Status.Error = v1beta1.PhaseFailed, &v1beta1.Error{Code: v1beta1.ErrorExhausted, Message: name + name}
			v.Status.FSType = name
		})
		w.volume(fmt.Sprint("w", i), "b/"+name, name, name, gib, gib/2, func(v *v1beta1.Volume) {
			v.Status = v1beta1.VolumeStatus{Phase: v1beta1.Phase(name), Size: quantity(gib)}
		})
		w.snapshot(fmt.Sprint("s", i), name, name, name, gib, gib)
		w.server("shop", fmt.Sprint("f", i), v1beta1.NFSServerStatus{Phase: v1beta1.NFSDegraded, Endpoint: name, Path: name, Node: name, ClaimName: name, Access: v1beta1.NFSAccess(name), Capacity: quantity(gib), Conditions: []metav1.Condition{condition(v1beta1.DegradedCondition, metav1.ConditionTrue, name, name)}})
		w.warning("shop", name, fmt.Sprint("e", i), name, name, 1, 0)
		w.job(fmt.Sprint("j", i), v1beta1.JobRunning, 3, 1)
	}
	w.serve()
	p := enter(t, w, "")
	p.picture("hostile", false)
	shown := map[string]int{}
	p.everywhere(w, func(where string) {
		if struck := run[bool](p, "window.struck !== undefined || ({}).polluted !== undefined"); struck {
			t.Errorf("%s: a name was executed", where)
		}
		if made := run[int](p, `document.querySelectorAll('main img, main script, main b b, [onerror], [onmouseover], a[href^="javascript"], iframe, base').length`); made > 0 {
			t.Errorf("%s: a name has become %d elements", where, made)
		}
		if raw := run[bool](p, `/[\u202a-\u202e\u200b\u0000\u001b]/.test(document.body.textContent)`); raw {
			t.Errorf("%s: a character that deceives is shown as it is", where)
		}
		text := run[string](p, "document.body.textContent")
		for _, name := range []string{hostile[0], hostile[1], "abc‹U+202E›gnp.exe", "&lt;b&gt;"} {
			if strings.Contains(text, name) {
				shown[name]++
			}
		}
	})
	for _, name := range []string{hostile[0], hostile[1], "abc‹U+202E›gnp.exe", "&lt;b&gt;"} {
		if shown[name] < 8 { // of 12
			t.Errorf("%q is shown as text in %d places", name, shown[name])
		}
	}
	// The address is from outside too.
	for _, query := range []string{"?view=__proto__", "?view=volumes&sort=%3Cimg%20src=x%20onerror=window.struck=1%3E", "?view=volumes&node=%3Cimg%20src=x%20onerror=window.struck=1%3E", "?view=volumes&page=-1&search=%3Cscript%3E"} {
		p.open(w.url + query)
		p.sound(w, query)
		if run[bool](p, "window.struck !== undefined") {
			t.Errorf("%s was executed", query)
		}
	}
}

const claimsShown = `[...document.querySelectorAll('tbody .name')].map((e) => e.textContent).join(' ')`

func TestList_IsSearchedSortedAndFilteredAndTheAddressKeepsIt(t *testing.T) {
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, health(true, "", "a", "b"))
	w.node("a", metav1.ConditionTrue, "", pool("fast", 100, 10, 10))
	for i, claim := range []string{"shop/one", "shop/two", "mail/three", "mail/four"} {
		w.volume(fmt.Sprint("v", i), claim, []string{"a", "b"}[i%2], "fast", int64(i+1)*gib, gib/2, func(v *v1beta1.Volume) {
			if i == 3 {
				v.Status.Phase = v1beta1.PhaseLost
			}
		})
	}
	w.serve()
	p := enter(t, w, "?view=volumes")
	is := func(what, address, claims string) {
		t.Helper()
		p.until(what+": "+claims, fmt.Sprintf("%s === %q", claimsShown, claims))
		if got := run[string](p, "location.search"); got != address {
			t.Errorf("%s: the address is %s, want %s", what, got, address)
		}
	}
	is("at first", "?view=volumes", "shop/one shop/two mail/three mail/four")
	run[any](p, "document.getElementById('search').focus()")
	p.write("shop")
	is("searched", "?view=volumes&search=shop", "shop/one shop/two")
	p.tabTo("th:nth-child(4) a")
	p.press("Enter")
	is("sorted by size, the largest first", "?view=volumes&search=shop&sort=-size", "shop/two shop/one")
	p.until("the order is announced", `document.querySelector('th:nth-child(4)').getAttribute('aria-sort') === 'descending' && document.activeElement === document.querySelector('th:nth-child(4) a')`)
	p.do("Page.reload", object{})
	p.until("it is loaded again", "document.getElementById('seen')?.textContent === 'Live'")
	is("after a reload", "?view=volumes&search=shop&sort=-size", "shop/two shop/one")
	p.until("the search is in its field", "document.getElementById('search').value === 'shop'")
	p.open(w.url + "?view=volumes&sort=-size")
	run[any](p, `(() => { const s = document.getElementById('filter-phase'); s.value = 'Lost'; s.dispatchEvent(new Event('change')); })()`)
	is("filtered by phase", "?view=volumes&sort=-size&phase=Lost", "mail/four")
	run[any](p, "history.back()")
	is("back", "?view=volumes&sort=-size", "mail/four mail/three shop/two shop/one")
	run[any](p, `[...document.querySelectorAll('tbody tr a')].find((a) => a.textContent === 'a').click()`)
	is("of one node", "?view=volumes&node=a", "shop/one mail/three")
	run[any](p, `document.querySelector('.chip').click()`)
	is("of all again", "?view=volumes", "shop/one shop/two mail/three mail/four")
	run[any](p, `document.getElementById('search').focus()`)
	p.write("nothing has this name")
	p.until("it says that nothing matches", `document.body.innerText.includes('Nothing matches.')`)
	p.sound(w, "lists")
}

func TestList_OrdersFiltersAndWordsChooseWhatIsShown(t *testing.T) {
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, health(true, "", "a", "b"))
	server, ceph := v1beta1.NodeOfServer("shop/files"), v1beta1.NodeOfCephPool("block")
	w.node("a", metav1.ConditionTrue, "", pool("fast", 100, 10, 90), pool("bulk", 200, 150, 20))
	w.node("b", metav1.ConditionUnknown, "", pool("fast", 100, 90, 50))
	w.node(server, metav1.ConditionFalse, "", pool("volumes", 10, 1, 1))
	w.node(ceph, metav1.ConditionTrue, "", pool("block", 10, 1, 0))
	damaged := condition(v1beta1.HealthyCondition, metav1.ConditionFalse, "Damaged", "")
	at := func(minutes int) *metav1.MicroTime {
		return &metav1.MicroTime{Time: time.Now().Add(-time.Duration(minutes) * time.Minute)}
	}
	w.volume("v1", "shop/c", "a", "fast", 3*gib, 1*gib, func(v *v1beta1.Volume) { v.Status.CreationTime = at(3) })
	w.volume("v2", "shop/b", "b", "fast", 9*gib, 2*gib, func(v *v1beta1.Volume) { v.Status.Phase, v.Status.CreationTime = v1beta1.PhaseLost, at(1) })
	w.volume("v3", "mail/a", server, "volumes", 3*gib, 3*gib, func(v *v1beta1.Volume) {
		v.Status.Conditions, v.Status.CreationTime = []metav1.Condition{damaged}, at(2)
	})
	w.volume("v4", "Mail/d", ceph, "block", 0, 0, func(v *v1beta1.Volume) { v.Status = v1beta1.VolumeStatus{} })
	w.snapshot("s1", "v2", "b", "fast", gib, 2*gib)
	w.snapshot("s2", "v1", "a", "bulk", 2*gib, gib)
	w.server("shop", "files", v1beta1.NFSServerStatus{Phase: v1beta1.NFSRunning, Endpoint: "10.0.0.1:2049", Node: "b", Clients: 2, Promised: quantity(gib)})
	w.server("games", "files", v1beta1.NFSServerStatus{Phase: v1beta1.NFSDegraded, Node: "a", ClaimName: "data", Clients: 1, Promised: quantity(2 * gib)})
	w.warning("shop", "Pod", "web", "Early", "first", 1, time.Hour)
	w.warning("shop", "Pod", "db", "Late", "second", 1, time.Minute)
	w.serve()
	p := enter(t, w, "")
	for _, test := range []struct{ query, want string }{
		{"view=volumes", "v1 v2 v3 v4"},
		{"view=volumes&sort=claim", "v4 v3 v2 v1"},
		{"view=volumes&sort=node", "v1 v2 v4 v3"},
		{"view=volumes&sort=-pool", "v3 v1 v2 v4"},
		{"view=volumes&sort=size", "v4 v1 v3 v2"}, // equal ones in the order of their names
		{"view=volumes&sort=-size", "v2 v1 v3 v4"},
		{"view=volumes&sort=-used", "v3 v2 v1 v4"},
		{"view=volumes&sort=-use", "v3 v1 v2 v4"},
		{"view=volumes&sort=-phase", "v2 v3 v4 v1"},
		{"view=volumes&sort=-creationTime", "v2 v3 v1 v4"},
		{"view=volumes&sort=--size", "v1 v2 v3 v4"},
		{"view=volumes&sort=__proto__", "v1 v2 v3 v4"},
		{"view=volumes&phase=Pending", "v4"},
		{"view=volumes&attention=true", "v2 v3"},
		{"view=volumes&attention=false&pool=fast", "v1"},
		{"view=volumes&node=b", "v2"},
		{"view=volumes&search=MAIL", "v3 v4"},
		{"view=volumes&search=lost+shop%2F", "v2"},
		{"view=volumes&search=shop%2Ffiles", "v3"},
		{"view=volumes&search=lost+mail", ""},
		{"view=volumes&search=+&page=2", ""},
		{"view=snapshots&sort=volume", "s2 s1"},
		{"view=snapshots&sort=-used", "s1 s2"},
		{"view=snapshots&volume=v1", "s2"},
		{"view=snapshots&search=bulk", "s2"},
		{"view=snapshots&pool=fast&node=b", "s1"},
		{"view=servers", "games/files shop/files"},
		{"view=servers&sort=-clients", "shop/files games/files"},
		{"view=servers&sort=promised", "shop/files games/files"},
		{"view=servers&sort=-phase", "games/files shop/files"},
		{"view=servers&node=b", "shop/files"},
		{"view=servers&phase=Degraded", "games/files"},
		{"view=servers&search=2049", "shop/files"},
		{"view=servers&search=data", "games/files"},
		{"view=events", "Late Early"},
		{"view=events&search=web", "Early"},
		{"view=pools", "b shop/filesNFS a blockCeph bulk fast fast block volumes"},
		{"view=pools&sort=-use&node=a", "a fast bulk"},
		{"view=pools&sort=available&search=%2Fsrv", "block volumes fast bulk fast"},
		{"view=pools&pool=bulk", "b shop/filesNFS a blockCeph bulk"},
	} {
		shown := run[string](p, fmt.Sprintf(`(() => {
			history.pushState(null, '', %q);
			dispatchEvent(new PopStateEvent('popstate'));
			const column = {volumes: '.id', events: '.strong'}[new URLSearchParams(location.search).get('view')] ?? '.name';
			return [...document.querySelectorAll('tbody ' + column)].map((e) => e.textContent).join(' ');
		})()`, "?"+test.query))
		if shown != test.want {
			t.Errorf("%s: %s, want %s", test.query, shown, test.want)
		}
	}
	p.sound(w, "lists")
}

func TestList_WhatMayNotBeReadIsNotAnEmptyList(t *testing.T) {
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, health(true, "", "a"))
	w.serve()
	p := enter(t, w, "?view=events")
	p.intercept(func(url string) (int, map[string]string, string) {
		if !strings.Contains(url, "/api/v1/report") {
			return 0, nil, ""
		}
		_, _, body := w.get("api/v1/report", password)
		body = strings.NewReplacer(`"nfsServers":[]`, `"nfsServers":null`, `"events":[]`, `"events":null,"hidden":{"events":"no right","nfsServers":"no role"}`).Replace(body)
		return http.StatusOK, nil, body
	})
	for query, want := range map[string]string{"view=events": "The events are not known: no right", "view=servers": "The NFS servers are not known: no role", "": "The events are not known: no right"} {
		p.open(w.url + "?" + query)
		p.until(want, fmt.Sprintf("document.querySelector('main').innerText.includes(%q)", want))
	}
	p.sound(w, "hidden")
}

func TestKeyboard_ReachesAndShowsTheFocusOfEverything(t *testing.T) {
	w := newWorld(t)
	w.lost()
	w.serve()
	p := enter(t, w, "")
	p.press("Tab")
	p.until("the first is the link that skips", `document.activeElement.matches('.skip') && document.activeElement.getBoundingClientRect().top >= 0`)
	p.press("Enter")
	p.until("it goes to the content", "document.activeElement.id === 'main'")
	for _, view := range []string{"", "?view=volumes"} {
		p.open(w.url + view)
		want := run[int](p, `[...document.querySelectorAll('a[href], button, input, select, summary')].filter((e) => e.checkVisibility()).length`)
		reached := run[int](p, "window.reached = new Set(), window.unseen = [], 0")
		for range want {
			p.press("Tab")
			reached = run[int](p, `(() => {
				const e = document.activeElement, style = getComputedStyle(e);
				if (e !== document.body) window.reached.add(e);
				if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) window.unseen.push(e.outerHTML.slice(0, 100));
				return window.reached.size;
			})()`)
		}
		if unseen := run[string](p, "window.unseen.join('\\n')"); reached != want || unseen != "" {
			t.Errorf("%s: %d of %d can be reached; without a visible focus: %s", view, reached, want, unseen)
		}
	}
	p.open(w.url)
	p.tabTo(`nav a[data-view="snapshots"]`)
	p.press("Enter")
	p.until("the snapshots", `location.search === '?view=snapshots' && document.querySelector('h2').textContent === 'Snapshots'`)
	p.tabTo("select")
	p.press("ArrowDown")
	p.until("the first phase is chosen", `document.querySelector('select').value === 'Ready' && location.search.includes('phase=Ready')`)
	p.sound(w, "keyboard")
}

func TestManyVolumes_AreShownPageByPage(t *testing.T) {
	const all = 2000
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, health(true, "", "rack1-a", "rack1-b"))
	w.node("rack1-a", metav1.ConditionTrue, "", pool("fast", 48000, 31000, 21400))
	w.node("rack1-b", metav1.ConditionTrue, "", pool("fast", 48000, 20000, 12000))
	for i := range all {
		size := int64(1+i%50) * gib
		w.volume(fmt.Sprintf("pvc-%04d", i), fmt.Sprintf("%s-%04d", claims[i%len(claims)], i), []string{"rack1-a", "rack1-b"}[i%2], "fast", size, size/int64(2+i%7))
	}
	w.serve()
	p := enter(t, w, "?view=volumes")
	const rows = "document.querySelectorAll('tbody tr').length"
	p.until("a page of them", rows+" === 100 && document.body.innerText.includes('1–100 of 2,000 volumes')")
	p.screenshot("many")
	few := run[int](p, "document.querySelectorAll('*').length")
	run[any](p, "[...document.querySelectorAll('.turn a')].at(-1).click()")
	p.until("the next page", rows+" === 100 && document.body.innerText.includes('101–200 of 2,000 volumes') && location.search === '?view=volumes&page=2'")
	p.open(w.url + "?view=volumes&page=20&sort=size")
	p.until("the last page", rows+" === 100 && document.body.innerText.includes('1,901–2,000 of 2,000 volumes') && !document.querySelectorAll('.turn a')[1].href")
	if many := run[int](p, "document.querySelectorAll('*').length"); many > few+100 {
		t.Errorf("the first page has %d elements, the last %d", few, many)
	}
	p.open(w.url + "?view=volumes&page=21")
	p.until("a page that is not there says so", `document.body.innerText.includes('Nothing is on this page.')`)
	run[any](p, "document.getElementById('search').focus()")
	p.write("1234")
	p.until("the one that is searched", rows+" === 1 && document.body.innerText.includes('1 volume')")
	// While nothing changes, nothing is sent: a page that is open costs next to nothing.
	p.open(w.url + "?view=volumes")
	sent := "performance.getEntriesByType('resource').filter((r) => r.name.includes('/report')).map((r) => [r.responseStatus, r.decodedBodySize].join(' ')).join(', ')"
	p.until("it is requested again and has not changed", "/^200 [0-9]{4,7}(, 304 0)+$/.test("+sent+")")
	p.sound(w, "many")
}

func TestLive_ChangesAppearAndTheFocusStays(t *testing.T) {
	w := newWorld(t)
	w.cluster(v1beta1.ClusterRunning, health(true, "", "a"))
	w.node("a", metav1.ConditionTrue, "", pool("fast", 100, 10, 10))
	w.volume("v1", "shop/one", "a", "fast", gib, gib/2)
	w.serve()
	p := enter(t, w, "?view=volumes")
	p.until("one volume", claimsShown+" === 'shop/one'")
	run[any](p, `window.link = document.querySelector('tbody a'); window.link.focus()`)
	w.volume("v0", "shop/zero", "a", "fast", gib, gib/2)
	p.until("the other appears before it", claimsShown+" === 'shop/zero shop/one'")
	if !run[bool](p, "document.activeElement === window.link && window.link.isConnected") {
		t.Error("the focus is lost")
	}
	v := check.Got(w.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "v1", metav1.GetOptions{}))(t)
	v.Status.Used = quantity(gib)
	check.Got(w.ours.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), v, metav1.UpdateOptions{}))(t)
	p.until("its use changes", `[...document.querySelectorAll('.takes')].some((e) => e.innerText.includes('100%'))`)
	p.until("its row has the focus again", `document.activeElement.matches('tbody tr:nth-child(2) td:nth-child(2) a')`)
	p.sound(w, "live")
}

func TestLive_WhatIsOldIsSaidToBeOld(t *testing.T) {
	w := newWorld(t)
	w.healthy()
	w.serve()
	p := enter(t, w, "?view=volumes")
	const notices = "document.getElementById('notices').innerText"
	p.intercept(func(string) (int, map[string]string, string) { return -1, nil, "" })
	p.until("it says since when", `/^Last seen [0-9]+ s ago$/.test(document.getElementById('seen').textContent) && `+notices+`.includes('does not answer')`)
	p.until("what was there is still shown", "document.querySelectorAll('tbody tr').length > 10")
	p.accessible("without an answer")
	p.screenshot("stale")
	p.intercept(nil)
	run[any](p, "document.querySelector('#notices button').click()")
	p.until("it answers again", `document.getElementById('seen').textContent === 'Live' && `+notices+` === ''`)

	p.intercept(func(url string) (int, map[string]string, string) {
		if !strings.Contains(url, "/api/v1/report") {
			return 0, nil, ""
		}
		status, header, body := w.get("api/v1/report", password)
		return status, map[string]string{"Age": "200", "ETag": header.Get("ETag")}, body
	})
	p.until("the API server is silent", `/^As of 3 min ago$/.test(document.getElementById('seen').textContent) && `+notices+`.includes('API server')`)
	p.intercept(nil)
	p.until("it is heard of again", `document.getElementById('seen').textContent === 'Live'`)

	p.intercept(func(string) (int, map[string]string, string) {
		return http.StatusTooManyRequests, map[string]string{"Retry-After": "7"}, `{"status":429,"reason":"","message":"too many wrong passwords came at once"}`
	})
	p.until("a refusal is shown", notices+`.includes('too many wrong passwords came at once')`)
	p.intercept(nil)
	p.until("it goes on by itself", `document.getElementById('seen').textContent === 'Live'`)
	p.sound(w, "stale")
}

func TestLive_AfterAChangeOfThePasswordItAsksNoMore(t *testing.T) {
	w := newWorld(t)
	w.healthy()
	w.serve()
	p := enter(t, w, "")
	p.mu.Lock()
	p.password = "" // the person who is asked does not know the new one
	p.mu.Unlock()
	check.Got(w.theirs.CoreV1().Secrets(home).Update(t.Context(), &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "access", Namespace: home}, Data: map[string][]byte{"username": []byte(user), "password": []byte("another")},
	}, metav1.UpdateOptions{}))(t)
	p.until("it says so", `document.getElementById('notices').innerText.includes('Reload this page to log in') && document.getElementById('seen').textContent.startsWith('Last seen')`)
	const seconds = "Number(/[0-9]+/.exec(document.getElementById('seen').textContent)[0])"
	p.until("what was asked with the first refusal is answered", seconds+" > 5")
	before := run[int](p, "performance.getEntriesByType('resource').length")
	p.until("ten more seconds are over", seconds+" > 15")
	if after := run[int](p, "performance.getEntriesByType('resource').length"); after != before {
		t.Errorf("it went on asking: %d requests, then %d", before, after)
	}
	if status, _, _ := w.get("api/v1/report", "another"); status != http.StatusOK {
		t.Errorf("the new password is answered %d", status)
	}
}
