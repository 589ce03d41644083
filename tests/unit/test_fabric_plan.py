"""What an emulated fabric is planned to be: rates, token buckets, layout. Nothing is run here."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from stepscope_workloads.fabric import plan
from stepscope_workloads.fabric.layout import SWITCH_ADDRESS
from stepscope_workloads.fabric.rates import FRAME, SEGMENT, Shape, parse_rate


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("600mbit", 600_000_000),
        ("1gbit", 1_000_000_000),
        ("1Gbit", 1_000_000_000),
        ("2.5gbit", 2_500_000_000),
        ("125mbps", 1_000_000_000),
        ("1mibit", 1_048_576),
        ("400000kbit", 400_000_000),
    ],
)
def test_a_rate_is_read_in_the_units_of_tc(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "600", "gbit", "1gb", "-1gbit", "1e3mbit", "fast", "1gbit/s"])
def test_what_is_no_rate_is_answered_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="a number and a unit as tc does, such as 600mbit or 1gbit"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["1kbit", "0mbit", "101gbit", "2tbit"])
def test_a_rate_that_no_emulation_keeps_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(ValueError, match="from 1mbit to 100gbit"):
        parse_rate(text)


def test_a_full_packet_carries_1448_bytes_in_1514_so_that_1_gbit_is_119_55_mb_a_second() -> None:
    assert (SEGMENT, FRAME) == (1448, 1514)
    assert Shape(1_000_000_000).payload_bytes_per_s == pytest.approx(119_550_858.65, abs=0.01)
    assert Shape(400_000_000).payload_bytes_per_s == pytest.approx(47_820_343.46, abs=0.01)


@pytest.mark.parametrize("rate", [1_000_000, 400_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000])
def test_a_bucket_holds_the_largest_packet_that_the_stack_hands_over(rate: int) -> None:
    shape = Shape(rate)
    assert shape.burst_bytes >= shape.segments * FRAME
    assert shape.gso_bytes <= 65_536
    assert shape.backlog_bytes < shape.limit_bytes


def test_at_1_gbit_eight_packets_pass_at_once_and_an_idle_link_catches_up_on_a_tenth_of_a_millisecond() -> (
    None
):
    shape = Shape(1_000_000_000)
    assert shape.segments == 8
    assert shape.burst_bytes == 8 * 1514 + 12_500


def test_one_rate_puts_all_ranks_of_all_nodes_on_one_bridge() -> None:
    layout = plan("1gbit", 2, 2)
    links = [*layout.switch_links(["/a", "/b", "/c", "/d"])]
    assert [line.split()[3] for line in links if "type bridge" in line] == ["switch"]
    assert "link add name port2 type veth peer name eth0 netns /c" in links
    assert [line.split()[3] for line in layout.switch_shapers()] == ["port0", "port1", "port2", "port3"]


def test_two_rates_give_each_node_a_bridge_and_an_uplink_that_its_ranks_share() -> None:
    layout = plan("2gbit,400mbit", 2, 2)
    links = [*layout.switch_links(["/a", "/b", "/c", "/d"])]
    assert [line.split()[3] for line in links if "type bridge" in line] == ["switch", "node0", "node1"]
    assert [layout.bridge(rank) for rank in layout.ranks] == ["node0", "node0", "node1", "node1"]
    rates = {line.split()[3]: line.split()[7] for line in layout.switch_shapers()}
    assert rates == {
        **dict.fromkeys(("port0", "port1", "port2", "port3"), "2000000000bit"),
        **dict.fromkeys(("up0", "down0", "up1", "down1"), "400000000bit"),
    }


def test_addresses_are_private_and_none_is_the_switchs() -> None:
    layout = plan("1gbit", 1, 250)
    addresses = [layout.address(rank) for rank in layout.ranks]
    assert len({*addresses, SWITCH_ADDRESS}) == 251
    assert all(address.startswith("10.200.") for address in addresses)


@pytest.mark.parametrize(
    ("text", "nodes", "ranks", "complaint"),
    [
        ("1gbit,400mbit", 1, 2, "there is one node; add --nnodes 2 or leave it out"),
        ("1gbit,2gbit,3gbit", 2, 2, "more than two rates"),
        ("1gbit", 1, 1, "1 ranks; an emulated fabric connects from 2 to 250"),
        ("1gbit", 2, 200, "400 ranks"),
    ],
)
def test_a_fabric_that_makes_no_sense_is_refused_with_what_to_write(
    text: str, nodes: int, ranks: int, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        plan(text, nodes, ranks)


def test_the_launcher_finds_the_emulation_by_its_entry_point() -> None:
    (entry,) = entry_points(group="stepscope.fabrics", name="emulated")
    assert entry.value == "stepscope_workloads.fabric:emulate"
