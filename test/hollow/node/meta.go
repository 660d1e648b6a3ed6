// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
)

// setMeta writes a value of META: to memory, and to the disk if there is one with Talos on it.
func (b *boot) setMeta(tag uint8, value string) error {
	return b.changeMeta(func(values map[uint8]string) { values[tag] = value })
}

func (b *boot) dropMeta(tag uint8) error {
	return b.changeMeta(func(values map[uint8]string) { delete(values, tag) })
}

func (b *boot) changeMeta(change func(map[uint8]string)) error {
	b.mu.Lock()
	values := maps.Clone(b.meta)
	change(values)
	b.meta = values
	b.mu.Unlock()
	if err := b.flushMeta(); err != nil {
		return err
	}
	b.refresh()
	return nil
}

// flushMeta writes what is in memory to the META partition of an installed machine.
func (b *boot) flushMeta() error {
	installed, err := b.installed()
	if err != nil || installed == nil {
		return err
	}
	b.mu.Lock()
	values := b.meta
	b.mu.Unlock()
	if err := b.node.folder.WriteMeta(values); err != nil {
		return fmt.Errorf("write META: %w", err)
	}
	return nil
}

func (b *boot) metaValue(tag uint8) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value, ok := b.meta[tag]
	return value, ok
}
