// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"fmt"
	"strings"
)

// join lists things as people do.
func join(list []string) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0]
	default:
		return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
	}
}

func names(members []Member) string {
	list := make([]string, 0, len(members))
	for i := range members {
		list = append(list, members[i].Name())
	}
	return join(list)
}

// named are members with their addresses.
func named(members []Member) string {
	list := make([]string, 0, len(members))
	for i := range members {
		text := members[i].Name()
		if address := members[i].Address; address != "" && address != text {
			text += " (" + address + ")"
		}
		list = append(list, text)
	}
	return join(list)
}

func doNotAnswer(members []Member) string {
	return "etcd on " + names(members) + " doesn't answer"
}

func urls(list []API) string {
	texts := make([]string, 0, len(list))
	for i := range list {
		texts = append(texts, list[i].URL)
	}
	return join(texts)
}

func isAre(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", count, many)
}

func orUnknown(text string) string {
	if text == "" {
		return "state unknown"
	}
	return text
}

func orAddress(node *Node) string {
	if node.Hostname != "" {
		return node.Hostname
	}
	return node.Address
}

func ifAny(message string) string {
	if message == "" {
		return ""
	}
	return " (" + message + ")"
}
