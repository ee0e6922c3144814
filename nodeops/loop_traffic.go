package nodeops

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Traffic has the kernel's I/O counters of a block device. Requests that the kernel has merged count once.
type Traffic struct{ Reads, ReadBytes, Writes, WrittenBytes uint64 }

// since returns the increase since an earlier count.
func (t Traffic) since(before Traffic) Traffic {
	return Traffic{t.Reads - before.Reads, t.ReadBytes - before.ReadBytes, t.Writes - before.Writes, t.WrittenBytes - before.WrittenBytes}
}

// LoopTraffic returns the I/O counters of a loop device since this process attached it, or since the first call for it.
// The kernel's counters are not reset when a device is attached to another file, so that they include earlier uses.
func LoopTraffic(device string) (Traffic, error) {
	now, err := countedOf(device)
	if err != nil {
		return Traffic{}, err
	}
	return now.since(loopCounts.begin(device, attachmentOf(filepath.Base(device)), now)), nil
}

// loopCounts has the counters of devices at the start of their current attachment.
var loopCounts = attachmentCounts{of: map[string]attachmentCount{}}

type attachmentCounts struct {
	mu sync.Mutex
	of map[string]attachmentCount
}

type attachmentCount struct {
	attachment string
	Traffic
}

// begin returns the counters at the start of an attachment, or stores the current ones if that is unknown.
func (c *attachmentCounts) begin(device, attachment string, now Traffic) Traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.of[device]; ok && known.attachment == attachment && known.ReadBytes <= now.ReadBytes && known.WrittenBytes <= now.WrittenBytes {
		return known.Traffic
	}
	c.of[device] = attachmentCount{attachment, now}
	return now
}

// set stores the counters at the start of an attachment.
func (c *attachmentCounts) set(device, attachment string, now Traffic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[device] = attachmentCount{attachment, now}
}

// sectorBytes is the unit of the counters, regardless of the device's sector size.
const sectorBytes = 512

// countedOf reads the counters of a device; the kernel's Documentation/block/stat.rst lists them.
func countedOf(device string) (t Traffic, err error) {
	dir := filepath.Join("/sys/block", filepath.Base(device))
	if attribute(dir, "queue/iostats") == "0" {
		return t, fmt.Errorf("%s: the kernel does not count, since its queue/iostats is 0: write 1 there", device)
	}
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return t, fmt.Errorf("the counters of %s: %w", device, err)
	}
	fields := strings.Fields(string(text))
	const reads, readSectors, writes, writtenSectors = 0, 2, 4, 6
	if len(fields) <= writtenSectors {
		return t, fmt.Errorf("the counters of %s are %.80q, which has too few fields", device, text)
	}
	for field, to := range map[int]*uint64{reads: &t.Reads, readSectors: &t.ReadBytes, writes: &t.Writes, writtenSectors: &t.WrittenBytes} {
		if *to, err = strconv.ParseUint(fields[field], 10, 64); err != nil {
			return t, fmt.Errorf("the counters of %s: %w", device, err)
		}
	}
	t.ReadBytes *= sectorBytes
	t.WrittenBytes *= sectorBytes
	return t, nil
}
