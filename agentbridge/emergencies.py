"""What has happened and cannot wait: how people tell it, and the first aid to look up for it."""

import re
from dataclasses import dataclass

# What is said beside what happened, before and after it: "wat moet ik doen?", "hoe help ik hem?".
CALL_FOR_HELP = re.compile(
    r"^\W*(?:help(?: me)?|kan iemand (?:me |mij )?helpen|wat (?:nu|doe ik|moet ik|moeten we)(?: nu)?(?: doen)?"
    r"|what (?:now|(?:do|should) (?:i|we) do))\s*[,:]\s*"
)
WHAT_NOW = re.compile(
    r"(?<=[\w!])\W+(?:en |and )?(?:(?:wat|hoe|what|how) (?:nu|moet|moeten|kan|doe|doen|help|now|to|do|should|can)"
    r"|wie bel)\b[^.!?]*"
)
SENTENCE = re.compile(r"[^.!?]+[.!?]*")
# Somebody wants to know, and nothing has happened.
WHAT_IF = re.compile(
    r"\b(?:als|wanneer|indien|zodra|stel|mocht|mag|mogen|hoe|welke|hoeveel|waarom|eisen|regels|verplicht|voorkom\w*|voordat"
    r"|tegen|leren|oefen\w*|cursus|training|(?:te doen|oogdouche|eerste hulp|ehbo) bij|vraag over"
    r"|if|when|how|which|why|prevent\w*|before|against|learn|practi[sc]e|question about)\b"
    r"|^\W*(?:en |maar |and |but )?(?:wie|wat|waar|waarvoor|moet|moeten|kan|kun|kunnen|is|zijn|ruikt|lekt"
    r"|who|what|where|must|may|should|can|could|does|do|are)\b"
)

PART_OF_BODY = (
    r"(?:hand|handen|arm|armen|been|benen|pols|enkel|voet|voeten|vingers?|vingertop|duim|teen|tenen|oor"
    r"|hands?|arms?|legs?|wrist|ankle|foot|fingers?|fingertip|thumb|toes?|ear)"
)
PERSON = (
    r"(?:ik|hij|zij|ze|we|wij|iemand|collega|man|vrouw|jongen|slachtoffer|\w*medewerker|monteur|chauffeur|stagiair"
    r"|he|she|i|somebody|someone|colleague|worker|coworker)"
)
# What burns eyes and skin, and what is poison when it is swallowed.
CORROSIVE = (
    r"(?:\w*zuur|\w*loog|bijtend\w*|chemisch\w*|chemicali\w*|chloor\w*|bleek|bleekmiddel\w*|bleekwater|ammoniak?|ammonia"
    r"|\w*ontstopper|ontkalker|\w*reiniger|natriumhydroxide|waterstofperoxide|peroxide|thinner|terpentine|aceton"
    r"|(?:\w*reinigings|schoonmaak|oplos|ontvettings|ontsmettings|desinfectie|bestrijdings|ontkalkings)middel\w*"
    r"|gevaarlijke (?:vloei)?stof"
    r"|acid|lye|caustic\w*|corrosive\w*|bleach|chlorine|drain (?:cleaner|opener)|\w*cleaner|chemicals?|acetone"
    r"|turpentine|solvents?|pesticides?)"
)
SUBSTANCE = (
    rf"(?:{CORROSIVE}|wasbenzine|benzine|diesel\w*|white spirit|spiritus|methanol|antivries|koelvloeistof|verf|lak|lijm"
    r"|kit|cement|kalk|beton|epoxy|\w*hars|\w*olie|zeep|shampoo|(?:afwas|was|vaatwas|koel|smeer)middel\w*|\w*gif"
    r"|iets giftigs"
    r"|petrol|gasoline|detergent|soap|paint|glue|lime|antifreeze|oil|poison|methylated spirits?|something poisonous)"
)
OBJECT = (
    r"(?:iets|stukjes?|stuk|\w*splinters?|metaal\w*|\w*scherven|\w*scherf|glas|stof|stofje|zand|vijlsel|slijpsel|ijzer\w*"
    r"|staal\w*|spaan\w*|\w*draad|hout\w*|spijker|vonk|vuil\w*"
    r"|something|pieces?|metal|splinters?|glass|dust|sand|grit|steel|wood|nail|spark)"
)
GAS = (
    r"(?:\w*gas|gaslucht|gasgeur|ammoniak?|ammonia|chloor|koolmonoxide|rook|brandlucht|propaan|butaan|lpg|waterstof|benzine"
    r"|h2s|\w*zuur|damp|dampen|oplosmiddel\w*|chemisch\w*|chemicali\w*|gevaarlijke stof\w*"
    r"|smoke|chlorine|carbon monoxide|propane|hydrogen|petrol|fumes|vapours?|acid|chemicals?)"
)
EYE = r"(?:linker|rechter|left |right )?(?:oog|ogen|eyes?)"
WHOSE = r"(?:zijn|haar|mijn|m'n|z'n|d'r|het|de|hun|een|beide|his|her|my|the|their|an|one|both|iemands)"
CONFINED = (
    r"(?:\w*tanks?|\w*silo|\w*put|\w*riool|kruipruimte|ketel|mestkelder|kruipkelder"
    r"|scheepsruim|laadruim|mangat|besloten ruimte"
    r"|tank|silo|pit|sewer|boiler|manhole|vessel|confined space|crawl space)"
)
OUT_COLD = (
    r"bewusteloos|buiten westen|buiten bewustzijn|hartstilstand|reageert|ademt|ademhaalt|gereanimeerd"
    r"|unconscious|not breathing|stopped breathing|responding|collapsed|cardiac arrest"
)

# Somebody tells that it has happened, and does not ask what to do if it should.
URGENT = re.compile(
    r"\b(is|zijn|ben|heeft|heb|hebben|ligt|staat|has|have|is having) (?!er een kans)(.{0,40}\b)?"
    r"(gevallen|bewusteloos|onwel|flauwgevallen|bekneld|vergiftigd|geëlektrocuteerd|in brand|in de fik|stroomschok|"
    r"schok gekregen|schok gehad|hartaanval|hartstilstand|fallen|fainted|unconscious|collapsed|trapped|on fire|"
    r"electric shock|heart attack)\b"
    r"|\b(stroomschok|stroomstoot|schok)\b.{0,20}\b(gehad|gekregen)\b"
    r"|\b(er is|there is|there's) (een |a )?"
    r"(brand|ontploffing|explosie|gaslek|ongeluk|ongeval|fire|explosion|gas leak|accident)\b"
    r"(?! (?:exting|door|drill|exit|alarm))"
    r"|\b(is|zijn|ben|heeft|heb|has|got) (.{0,30}\b)?(gewond|verbrand|gesneden|verdronken|injured|hurt|burned|burnt)\b"
    r"|\b(arm|been|pols|enkel|voet|vingers?|hand|leg|wrist|ankle|foot|fingers?)\b.{0,20}"
    r"\b(gebroken|afgehakt|afgezaagd|afgerukt|verbrijzeld|broken|severed|crushed)\b"
    r"|\b(has|have|heeft|heb) (broken|cut off|lost) (a|an|his|her|my|zijn|haar|mijn) \w+"
    r"|\b(bloedt|ademt niet|reageert niet|zit vast in|krijgt geen lucht|is bleeding|not breathing)\b"
)
# The same in words that also tell what may be: these mean that it has happened where nobody asks for the rule.
PERHAPS_URGENT = [
    re.compile(pattern)
    for pattern in (
        r"^\W*(?:help(?: me)?|noodgeval|spoed|sos|emergency)\W*$",
        rf"\b{PERSON}\b.{{0,30}}\b(?:collapsed|passed out|zakt\w* in elkaar|in elkaar gezakt)\b",
        r"\bniet (?:meer )?(?:reageert|ademt|ademhaalt)\b|\b(?:not|isn't|stopped) (?:responding|breathing)\b",
        rf"\b(?:{PERSON}|{PART_OF_BODY})\b.{{0,40}}\b(?:vast|klem|beklemd|ingeklemd|bekneld|stuck|trapped)\b",
        rf"\b(?:{PERSON}|{PART_OF_BODY})\b.{{0,40}}\bonder (?:stroom|spanning) (?:(?:ge)?komen|gestaan|staat)\b",
        r"\b(?:is|ben|zijn)\b.{0,40}\b(?:aangereden|overreden|neergestoken|geplet|verpletterd)\b",
        r"\b(?:is|was) run over\b",
        # Fire.
        r"^\W*(?:er is )?(?:brand|vuur|(?:a )?fire) (?:in|op|bij|at|on) (?:de|het|een|onze?|mijn|the|our|a) .{1,40}$",
        r"(?<!lamp )(?<!lampje )(?<!licht )(?<!oog )(?<!ogen )(?<!huid )\bbrandt\b",
        r"\b(?:staat in lichterlaaie|vliegt in brand|vat vlam|woedt brand)\b|\b(?:house|building|machine) is burning\b",
        r"\ber (?:komt|komen|slaan)\b.{0,20}\b(?:rook|vlammen)\b|\bsmoke (?:is )?com(?:ing|es)\b",
        # Gas.
        rf"\b(?:ik|we|wij|het|hier|iemand|mensen|\w*collega\w*) ruik(?:t|en)?\b.{{0,30}}\b{GAS}\b",
        rf"\b(?:smells?|smelling|smelled)\b.{{0,20}}\b{GAS}\b",
        r"\b(?:hangt|hangen|er is|er komt)\b.{0,30}\b(?:gaslucht|gasgeur)\b",
        rf"\b(?:lekt|gelekt|weggelekt|ontsnapt|vrijgekomen|leaks|leaking|leaked|escaping|escaped)\b.{{0,40}}\b{GAS}\b",
        rf"\b{GAS}\b.{{0,40}}\b(?:lekt|gelekt|weggelekt|ontsnapt|vrijgekomen|leaks|leaking|leaked|escaping|escaped)\b",
        rf"\b(?:er is|we hebben|hier is|there is|there's|we have)\b.{{0,20}}\b{GAS}(?:lek| leak|lekkage)\b",
        rf"\b(?:{GAS}|{SUBSTANCE})\b.{{0,30}}\bingeademd\b",
        rf"\b(?:inhaled|breathed in)\b.{{0,30}}\b(?:{GAS}|{SUBSTANCE})\b",
        # In the eye or the mouth, on the skin.
        rf"\b(?:{SUBSTANCE}|{OBJECT})\b.{{0,40}}\bin(?: {WHOSE})? {EYE}\b",
        rf"\bin(?: {WHOSE})? {EYE}\b.{{0,20}}\b(?:gespat|gespoten|gevlogen|gekomen|gekregen|terechtgekomen)\b",
        rf"\b(?:splashed|sprayed|flew|got)\b.{{0,20}}\bin(?:to)? {WHOSE} {EYE}\b",
        rf"\b{EYE}\b.{{0,30}}\b(?:zit|zitten|vol)\b.{{0,20}}\b(?:{SUBSTANCE}|{OBJECT})\b",
        rf"\b{CORROSIVE}\b.{{0,40}}\b{EYE}\b|\b{EYE}\b.{{0,20}}\b(?:door|van|from)\b.{{0,10}}\b{CORROSIVE}\b",
        rf"\b{CORROSIVE}\b.{{0,30}}\b(?:op|over|in|on|onto)(?: {WHOSE})? (?:huid|gezicht|skin|face)\b",
        rf"\b{CORROSIVE}\b.{{0,30}}\b(?:op|over|on|onto) {WHOSE} {PART_OF_BODY}\b",
        # Swallowed.
        r"\b(?:heb|heeft|hebben|has|have)\b.{0,60}\b(?:ingeslikt|doorgeslikt|swallowed)\b",
        rf"\b{PERSON}\b.{{0,20}}\bswallowed\b",
        rf"\b{SUBSTANCE}\b.{{0,40}}\b(?:(?:op)?gedronken|(?:in|door)geslikt|binnengekregen|gegeten|in {WHOSE} mond)\b",
        rf"\b(?:dronk|slikte|slok|drank|drunk|swallowed|ingested|in {WHOSE} mouth)\b.{{0,40}}\b{SUBSTANCE}\b",
        rf"\b{SUBSTANCE}\b.{{0,40}}\b(?:swallowed|in {WHOSE} mouth)\b|\bis vergiftigd\b|\bpoisoned\b",
        # Choking, and the heart.
        r"\b(?:stikt|verdrinkt)\b(?!.{0,12} van (?:het|de))|\bhet stikken\b|\bverslikt zich\b",
        r"\b(?:heeft|heb|hebt|is)\b.{0,30}\bverslikt\b|\bin (?:zijn|haar|de|mijn) keel\b",
        r"\b(?:is|was|am|i'm|he's|she's) (?:choking|drowning)\b",
        r"\bkrijgt?\b.{0,20}\bgeen (?:lucht|adem)\b(?! (?:meer )?van)",
        r"\bkan niet (?:meer )?ademen\b|\b(?:can't|cannot|can not) breathe\b",
        r"\b(?:pijn|druk)\b.{0,12}\b(?:op|in) (?:de|zijn|haar|mijn) borst\b|\bborstpijn\b",
        r"\bchest pain\b|\bpain in .{1,6}chest\b",
        r"\b(?:heeft|heb|krijgt|has|is having)\b.{0,20}\b(?:hartinfarct|beroerte|scheve mond|a stroke)\b",
        # Wounds.
        rf"\b{PART_OF_BODY}\b.{{0,30}}\b(?:af(?:gezaagd|gehakt|gerukt|gesneden|geknipt)|geamputeerd|er ?af)\b",
        rf"\b{PART_OF_BODY}\b.{{0,30}}\b(?:(?:cut|sawn|chopped|came) off|severed|amputated)\b",
        rf"\b(?:cut|sawed|sawn|chopped|lost)\b.{{0,8}}\b(?:off )?{WHOSE} {PART_OF_BODY}\b",
        r"\b(?:hevig|heftig|ernstig|slagaderlijk)\w* (?:bloed\w*|bleeding)\b",
        r"\b(?:verliest|spuit|gutst|komt)\b.{0,12}\bbloed\b|\bbloed\b.{0,12}\b(?:spuit|gutst|stroomt|verloren)\b",
        r"\bbleeds\b|\bbleeding (?:badly|heavily|a lot)\b|\blosing .{0,12}blood\b",
        # Where nobody may follow.
        rf"\b(?:ligt|is)\b.{{0,30}}\b(?:bewegingloos|neergevallen|ingestort)\b.{{0,20}}\bin\b.{{0,10}}\b{CONFINED}\b",
        rf"\b(?:ligt|hangt|lies|is lying)\b.{{0,20}}\b(?:in|op de bodem van) (?:de|het|een|the|a) {CONFINED}\b",
    )
]


@dataclass(frozen=True)
class Emergency:
    """One kind of emergency: what to look up, and what the text on it can be told by."""

    happened: re.Pattern[str]
    query: dict[str, str]
    # What a heading on it names.
    heading: re.Pattern[str]
    # Where the text on it begins, of a section that is about more.
    begins: re.Pattern[str] | None = None


# A heading or a title that tells what to do, rather than what to store where.
FIRST_AID = re.compile(
    r"eerste hulp|ehbo|redding|wat te doen|noodgeval|noodsituatie|calamiteit|ongeval"
    r"|first aid|rescue|what to do|emergenc|accident",
    re.IGNORECASE,
)


def _kind(happened: str, *, nl: str, en: str, heading: str, begins: str = "") -> Emergency:
    return Emergency(
        happened=re.compile(happened),
        query={"nl": nl, "en": en},
        heading=re.compile(heading, re.IGNORECASE),
        begins=re.compile(begins, re.IGNORECASE) if begins else None,
    )


# The more particular first.
EMERGENCIES = [
    _kind(
        r"\b(?:brand|fik|vuur|vlam|vlammen|lichterlaaie|ontploffing|explosie|fire|burning|explosion)\b"
        r"|(?<!oog )(?<!ogen )(?<!huid )\bbrandt\b|\ber komt\b.{0,20}\brook\b|\bsmoke (?:is )?com",
        nl="wat te doen bij brand, ontruiming",
        en="what to do in a fire, evacuation",
        heading=r"\bbij (?:een )?brand\b|\bin (?:case of )?(?:a )?fire\b",
        begins=r"\bbij (?:een )?brand\b|\bin case of (?:a )?fire\b",
    ),
    _kind(
        rf"(?:{OUT_COLD}|onwel|flauw|faint|ligt|hangt|lies|lying|bewegingloos|neergevallen|ingestort|geen lucht"
        r"|gevallen|fallen)"
        rf".*\b(?:in|bodem van|inside|of) (?:\w+ ){{0,2}}{CONFINED}\b"
        rf"|\b(?:in|inside) (?:\w+ ){{0,2}}{CONFINED}\b.*(?:{OUT_COLD}|onwel|flauw|faint|geen lucht|gevallen|fallen)",
        nl="redding uit een besloten ruimte na een ongeval",
        en="rescue from a confined space after an accident",
        heading=r"besloten ruimte|confined space",
        begins=r"\bbij een ongeval\b|\bga nooit\b|\bafter an accident\b|\bnever enter\b",
    ),
    # Who touches somebody under voltage is the next victim.
    _kind(
        r"stroom(?!t)|spanning|schok|elektro|electro|shock",
        nl="eerste hulp bij een elektrische schok",
        en="first aid for an electric shock",
        heading=r"schok|elektrocutie|electric shock|electrocution",
    ),
    _kind(
        OUT_COLD,
        nl="eerste hulp bij bewusteloosheid en hartstilstand",
        en="first aid for unconsciousness and cardiac arrest",
        heading=r"bewusteloos|hartstilstand|reanim|unconscious|cardiac arrest|\bcpr\b",
        begins=r"\bbewusteloos\b|\bunconscious\b",
    ),
    _kind(
        r"verslik|\bstikt\b|stikken|geen lucht|geen adem|ademen|\bkeel\b|\bchok|breathe",
        nl="eerste hulp bij verslikken en verstikking",
        en="first aid for choking and suffocation",
        heading=r"verslik|verstik|chok",
    ),
    _kind(
        r"\bhart|borst|beroerte|scheve mond|chest|heart|stroke",
        nl="eerste hulp bij pijn op de borst, een hartaanval of een beroerte",
        en="first aid for chest pain, a heart attack or a stroke",
        heading=r"\bborst\b|hartaanval|hartinfarct|chest|heart attack",
    ),
    _kind(
        r"onwel|flauw|faint|passed out|in elkaar",
        nl="eerste hulp bij flauwvallen",
        en="first aid for fainting",
        heading=r"flauw|onwel|faint",
    ),
    _kind(
        rf"\b{OBJECT}\b.*\b{EYE}\b(?!.*{CORROSIVE})",
        nl="eerste hulp bij een splinter of een stuk metaal in het oog",
        en="first aid for a splinter or a piece of metal in the eye",
        heading=r"(?:splinter|metaal|voorwerp|vuil|metal|object).*\b(?:oog|ogen|eyes?)\b",
    ),
    _kind(
        rf"\b{EYE}\b",
        nl="eerste hulp bij een bijtende stof in het oog",
        en="first aid for a corrosive substance in the eye",
        heading=r"(?:stof|chemi|zuur|substance).*\b(?:oog|ogen|eyes?)\b",
    ),
    _kind(
        r"ingeslikt|doorgeslikt|gedronken|binnengekregen|gegeten|vergiftigd|\b(?:dronk|slikte|slok|mond)\b"
        r"|drank|drunk|swallowed|ingested|poisoned|\bmouth\b",
        nl="eerste hulp bij inslikken van een chemische of bijtende stof, vergiftiging",
        en="first aid for swallowing a chemical, poisoning",
        heading=r"inslik|ingeslikt|vergiftig|swallow|poison",
    ),
    _kind(
        r"beklem|bekneld|klem|\bvast\b|trapped|stuck",
        nl="eerste hulp bij beknelling",
        en="first aid for entrapment",
        heading=r"beknel|entrapment",
        begins=r"\bbekneld\b|\btrapped\b",
    ),
    _kind(
        rf"\b(?:huid|gezicht|skin|face)\b|\b{CORROSIVE}\b.*\b{PART_OF_BODY}\b",
        nl="eerste hulp bij een bijtende stof op de huid",
        en="first aid for a corrosive substance on the skin",
        heading=r"(?:stof|chemi|zuur|substance).*\b(?:huid|skin)\b",
        begins=r"\bop de huid\b|\boff the skin\b",
    ),
    _kind(
        rf"lek|ruik|vrijgekomen|ontsnapt|ingeademd|leak|smell|escap|inhaled|breathed in|\b{GAS}\b",
        nl="eerste hulp bij een gaslek of het vrijkomen van gas, damp of rook",
        en="first aid for a gas leak or a release of gas, vapour or smoke",
        heading=r"gaslek|vrijkomen|lekkage|gas leak|release of",
    ),
    _kind(
        r"\b(?:af(?:gezaagd|gehakt|gerukt|gesneden|geknipt)|geamputeerd|er ?af|off|lost|severed|amputated)\b",
        nl="eerste hulp bij een afgezaagde of afgehakte vinger, amputatie",
        en="first aid for a finger that is cut off, amputation",
        heading=r"amputat|afgehakt|afgezaagd|cut off|severed",
    ),
    _kind(
        r"verbrand|burn",
        nl="eerste hulp bij brandwonden",
        en="first aid for burns",
        heading=r"brandwond|\bburns?\b",
    ),
    _kind(
        r"bloed|gesneden|neergestoken|bleed|blood|\bcut\b",
        nl="eerste hulp bij ernstige bloedingen en snijwonden",
        en="first aid for severe bleeding and cuts",
        heading=r"bloeding|snijwond|bleeding",
        begins=r"\bbloedende?\b|\bbleeding\b",
    ),
    _kind(
        r"\bgevallen\b|gebroken|verbrijzeld|geplet|verpletterd|fallen|broken|crushed",
        nl="eerste hulp na een val, bij een botbreuk",
        en="first aid after a fall, for a fracture",
        heading=r"\bval\b|botbreuk|\bfall\b|fracture",
    ),
]
AN_ACCIDENT = _kind(
    "",
    nl="eerste hulp, wat te doen na een ongeval",
    en="first aid, what to do after an accident",
    heading=r"(?:na|bij) een ongeval|after an accident|in an emergency",
)


def emergency_in(text: str) -> Emergency | None:
    """What has happened that cannot wait, in a text in small letters; nothing where somebody only wants to know."""
    told = [WHAT_NOW.sub("", CALL_FOR_HELP.sub("", one)) for one in SENTENCE.findall(text)]
    happened = [
        one
        for one in told
        if URGENT.search(one) or (not WHAT_IF.search(one) and any(pattern.search(one) for pattern in PERHAPS_URGENT))
    ]
    if not happened:
        return None
    return next((kind for kind in EMERGENCIES if any(kind.happened.search(one) for one in happened)), AN_ACCIDENT)
