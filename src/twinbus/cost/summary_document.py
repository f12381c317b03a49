"""A summary as one JSON document. Counts are numbers; money is text, for a binary number would change it."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from twinbus.cost.amounts import money_value
from twinbus.cost.month_to_date import MonthBill
from twinbus.cost.summary import Outage, Point, Skew, Sum, Summary


def summary_document(summary: Summary) -> dict[str, Any]:
    sheet = summary.sheet
    return {
        "month": summary.month,
        "prices": {
            "sheet": sheet.name,
            "as_of": sheet.as_of.isoformat(),
            "currency": sheet.currency,
            "is_example": sheet.is_example,
            "plan": summary.plan.name,
        },
        "money": money_value(summary.money),
        "total": _sum(summary.total, summary),
        "bills": [_bill(bill) for bill in summary.bills],
        "causes": {name: _sum(each, summary) for name, each in summary.causes.items()},
        "paths": {name: _sum(each, summary) for name, each in summary.paths.items()},
        "entities": [
            {"namespace": namespace, "entity": entity, **_sum(each, summary)}
            for (namespace, entity), each in summary.entities.items()
        ],
        "entities_left_out": summary.entities_left_out,
        "fragments": [_skew(skew) for skew in summary.skews],
        "series": [_point(point) for point in summary.series],
        "outage": _outage(summary.outage, summary),
    }


def _sum(each: Sum, summary: Summary) -> dict[str, Any]:
    return {
        "operations": each.operations,
        "messages": each.messages,
        "bytes": each.bytes,
        "units": each.units,
        "money": money_value(each.money),
        "list_money": money_value(summary.list_money(each.units)),
    }


def _bill(bill: MonthBill) -> dict[str, Any]:
    return {
        "namespace": bill.namespace,
        "month": bill.month,
        "units": bill.units,
        "bytes": bill.bytes,
        "tiers": [
            {
                "from": share.starts_at,
                "units": share.units,
                "per_million": money_value(share.tier.price),
                "money": money_value(share.money),
            }
            for share in bill.shares
        ],
        "operations_money": money_value(bill.operations_money),
        "bandwidth_money": money_value(bill.bandwidth_money),
        "base": money_value(bill.base),
        "money": money_value(bill.money),
    }


def _skew(skew: Skew) -> dict[str, Any]:
    messages = {str(fragment): count for fragment, count in skew.messages.items()}
    return {"namespace": skew.namespace, "entity": skew.entity, "ratio": _plain(skew.ratio), "messages": messages}


def _point(point: Point) -> dict[str, Any]:
    causes: Mapping[str, Any] = {
        name: {"units": each.units, "money": money_value(each.money)} for name, each in point.causes.items()
    }
    return {"at": point.at, "causes": causes, "receives": point.receives, "empty_receives": point.empty_receives}


def _outage(outage: Outage, summary: Summary) -> dict[str, Any]:
    return {
        "hours": list(outage.hours),
        "sends_to_backlog": _sum(outage.sends_to_backlog, summary),
        "receives_from_backlog": _sum(outage.receives_from_backlog, summary),
        "sends_home": _sum(outage.sends_home, summary),
        "pings": _sum(outage.pings, summary),
        "idle_polls": _sum(outage.idle_polls, summary),
        "extra_units": outage.extra_units,
        "extra_money": money_value(outage.extra_money),
        "extra_list_money": money_value(summary.list_money(outage.extra_units)),
    }


def _plain(number: Decimal) -> str:
    return f"{number:f}"
